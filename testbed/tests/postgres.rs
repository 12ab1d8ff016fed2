//! What a private PostgreSQL promises its tests.

use sqlx::{Connection, Executor, PgConnection};
use testbed::Postgres;

#[tokio::test]
async fn replica_catches_up_with_what_its_primary_has_removed_meanwhile() {
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
