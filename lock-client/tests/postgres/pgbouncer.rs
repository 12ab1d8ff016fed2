//! Locks in PostgreSQL behind PgBouncer in transaction mode, where there is no session.

use std::time::Duration;

use lock_client::{Locks, postgres::Postgres};
use sqlx::{Connection, Executor, PgConnection, postgres::PgConnectOptions, raw_sql};
use testbed::PgBouncer;

use super::{locked, patient};
use crate::sql;

#[tokio::test]
async fn locks_work_behind_pgbouncer() {
    let (server, _) = locked().await;
    let bouncer = PgBouncer::start(&server).await.unwrap();
    let client = patient(&bouncer.url());
    sql::tokens_grow(&client).await.unwrap();
    sql::same_holder_has_its_grant_again(&client).await.unwrap();
    sql::expired_lock_is_not_renewed(&client).await.unwrap();
    sql::reissued_token_is_above_both(&client).await.unwrap();
    sql::lock_of_another_is_not_released(&client).await.unwrap();
    sql::queue_is_not_overtaken(&client).await.unwrap();
    sql::one_of_many_holds(&client).await.unwrap();
    sql::fair_waiters_keep_their_order(&client).await.unwrap();
}

/// Without notifications, a waiter tries once a second or more often.
#[tokio::test]
async fn waiters_poll_behind_pgbouncer() {
    let (server, _) = locked().await;
    let bouncer = PgBouncer::start(&server).await.unwrap();
    let open = || Ok(Locks::new(Postgres::open(&bouncer.url())?));
    sql::release_wakes_the_waiter(open, 20, Duration::from_secs(3)).await.unwrap();
}

/// Each statement goes to another session, so that no two connections ever seem to share one. A LISTEN
/// would stay in a session that other clients use.
#[tokio::test]
async fn no_session_of_a_pooler_listens() {
    let (server, _) = locked().await;
    let bouncer = PgBouncer::start_with(&server, &["server_round_robin = 1"]).await.unwrap();
    // 1. The pooler has several sessions.
    let mut others = Vec::new();
    for _ in 0..4 {
        let options: PgConnectOptions = bouncer.url().parse().unwrap();
        let options = options.extra_float_digits(None);
        let mut other = PgConnection::connect_with(&options).await.unwrap();
        other.execute(raw_sql("begin")).await.unwrap();
        others.push(other);
    }
    for other in &mut others {
        other.execute(raw_sql("rollback")).await.unwrap();
    }
    // 2. Waiters are woken.
    let open = || Ok(Locks::new(Postgres::open(&bouncer.url())?));
    sql::release_wakes_the_waiter(open, 5, Duration::from_secs(3)).await.unwrap();
    // 3. In none of its sessions arrives what is sent to waiters.
    for _ in 0..20 {
        let channels = "select count(*) from pg_listening_channels() c where c = 'fenced_lock'";
        let channels = raw_sql(channels).fetch_one(&mut others[0]).await.unwrap();
        assert_eq!(sqlx::Row::get::<i64, _>(&channels, 0), 0);
    }
}
