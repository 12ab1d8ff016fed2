//! What a private PostgreSQL promises its tests.

use sqlx::{Connection, Executor, PgConnection};
use testbed::Postgres;

#[tokio::test]
async fn replica_that_was_cut_off_catches_up_after_checkpoints_of_its_primary() {
    let primary = Postgres::start().await.unwrap();
    let replica = primary.start_replica().await.unwrap();
    replica.cut();
    let mut connection = PgConnection::connect(&primary.url()).await.unwrap();
    for _ in 0..5 {
        let next_segment = "create table t (); drop table t; select pg_switch_wal(); checkpoint";
        connection.execute(next_segment).await.unwrap();
    }
    replica.mend();
    replica.catch_up(&primary).await.unwrap();
}
