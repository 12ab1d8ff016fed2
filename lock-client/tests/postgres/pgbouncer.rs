//! Locks in PostgreSQL behind PgBouncer in transaction mode, where there is no session.

use std::time::Duration;

use lock_client::{Locks, postgres::Postgres};
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
