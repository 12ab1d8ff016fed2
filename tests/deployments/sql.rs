//! Tables of locks in PostgreSQL and MariaDB. The clock is the database's.

use std::time::Duration;

use fence::ClaimError;
use lock_client::{
    AcquireError, Lease, Locks, mariadb, mariadb::MariaDb, postgres, postgres::Postgres,
};
use sqlx::{Connection, MySqlConnection, PgConnection};
use testbed::{Clock, wait::until_async};

use super::{
    LONGEST_EXPIRY, MINUTE, SHORT_MS, Storages, TEN_MINUTES, TWO_HOLDERS, TWO_HOLDERS_OF_ONE_TOKEN,
    Then,
};
use crate::{
    lock_service::{lasting, unrenewed},
    names::name,
};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

async fn postgres(server: &testbed::Postgres) -> Locks {
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut connection).await.unwrap();
    Locks::new(Postgres::open(&server.url()).unwrap().answer_within(PATIENCE))
}

async fn mariadb(server: &testbed::MariaDb) -> Locks {
    let mut connection = MySqlConnection::connect(&server.url()).await.unwrap();
    mariadb::install(&mut connection).await.unwrap();
    Locks::new(MariaDb::open(&server.url()).unwrap().answer_within(PATIENCE))
}

/// The backup, or the replica, has this grant and its release, but not the next grant.
async fn grant_once(locks: &Locks) {
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    lease.release().await.unwrap();
}

/// The clock jumps ahead, and locks expire at once.
async fn locks_expire_when_the_clock_jumps_ahead(locks: &Locks, clock: &Clock) {
    let storages = Storages::start().await;
    let first = storages.first(locks, "undisturbed").await;
    assert_eq!(storages.then(first, locks).await, Then::Excluded);
    let first = storages.first(locks, "ahead").await;
    clock.jump(TEN_MINUTES + MINUTE).unwrap();
    assert_eq!(storages.then(first, locks).await, TWO_HOLDERS);
}

/// The clock jumps back, and locks last for longer than their leases. Nobody else is let in.
async fn locks_last_when_the_clock_jumps_back(locks: &Locks, clock: &Clock) {
    let lease = locks.acquire(&name("back"), unrenewed(SHORT_MS)).await.unwrap();
    clock.jump_back(MINUTE).unwrap();
    // The control: a lock that was acquired later, for as long, is free by now.
    let _control = locks.acquire(&name("control"), unrenewed(SHORT_MS)).await.unwrap();
    let is_free = async || Ok(locks.status(&name("control")).await?.held.is_none());
    until_async(LONGEST_EXPIRY, is_free).await.unwrap();
    assert!(lease.token().is_err(), "the lease ended at its deadline");
    let rejected = locks.acquire(&name("back"), lasting()).await;
    assert!(matches!(rejected, Err(AcquireError::Contended { .. })), "{rejected:?}");
    clock.jump(MINUTE).unwrap();
    let _second = locks.acquire(&name("back"), lasting()).await.unwrap();
}

#[tokio::test]
async fn postgresql_whose_clock_jumps() {
    let server = testbed::Postgres::start_with_own_clock().await.unwrap();
    let (locks, clock) = (postgres(&server).await, server.clock().unwrap());
    locks_last_when_the_clock_jumps_back(&locks, &clock).await;
    locks_expire_when_the_clock_jumps_ahead(&locks, &clock).await;
}

#[tokio::test]
async fn mariadb_whose_clock_jumps() {
    let server = testbed::MariaDb::start_with_own_clock().await.unwrap();
    let (locks, clock) = (mariadb(&server).await, server.clock().unwrap());
    locks_last_when_the_clock_jumps_back(&locks, &clock).await;
    locks_expire_when_the_clock_jumps_ahead(&locks, &clock).await;
}

#[tokio::test]
async fn postgresql_that_is_restored_from_a_backup() {
    let storages = Storages::start().await;
    let mut server = testbed::Postgres::start().await.unwrap();
    let locks = postgres(&server).await;
    grant_once(&locks).await;
    server.back_up().await.unwrap();
    server.start_again().await.unwrap();
    let first = storages.first(&locks, "r").await;
    server.restore().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS_OF_ONE_TOKEN);
}

#[tokio::test]
async fn mariadb_that_is_restored_from_a_backup() {
    let storages = Storages::start().await;
    let mut server = testbed::MariaDb::start().await.unwrap();
    let locks = mariadb(&server).await;
    grant_once(&locks).await;
    server.back_up().unwrap();
    server.start_again().await.unwrap();
    let first = storages.first(&locks, "r").await;
    server.restore().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS_OF_ONE_TOKEN);
}

#[tokio::test]
async fn postgresql_whose_replica_takes_over() {
    let storages = Storages::start().await;
    let primary = testbed::Postgres::start().await.unwrap();
    let locks = postgres(&primary).await;
    let replica = primary.start_replica().await.unwrap();
    grant_once(&locks).await;
    replica.catch_up(&primary).await.unwrap();
    replica.cut();
    let first = storages.first(&locks, "r").await;
    replica.promote().await.unwrap();
    let locks = Locks::new(Postgres::open(&replica.url()).unwrap().answer_within(PATIENCE));
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS_OF_ONE_TOKEN);
}

#[tokio::test]
async fn mariadb_whose_replica_takes_over() {
    let storages = Storages::start().await;
    let primary = testbed::MariaDb::start_with(&["--log-bin"]).await.unwrap();
    let locks = mariadb(&primary).await;
    let replica = primary.start_replica().await.unwrap();
    grant_once(&locks).await;
    replica.catch_up(&primary).await.unwrap();
    replica.cut();
    let first = storages.first(&locks, "r").await;
    replica.promote().await.unwrap();
    let locks = Locks::new(MariaDb::open(&replica.url()).unwrap().answer_within(PATIENCE));
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS_OF_ONE_TOKEN);
}

/// Lock and data in one database: the restore takes the tokens from both.
#[tokio::test]
async fn fence_goes_back_with_a_restored_postgresql() {
    let mut server = testbed::Postgres::start().await.unwrap();
    let locks = postgres(&server).await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    fence::postgres::install(&mut connection).await.unwrap();
    grant_once(&locks).await;
    server.back_up().await.unwrap();
    server.start_again().await.unwrap();
    let url = server.url();
    let claim = async |lease: &Lease| {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let (resource, offered) = (name("account"), lease.fence().unwrap());
        fence::postgres::claim(&mut connection, &resource, &offered).await
    };
    let first = locks.acquire(&name("r"), lasting()).await.unwrap();
    claim(&first).await.unwrap();
    server.restore().await.unwrap();
    let second = locks.acquire(&name("r"), lasting()).await.unwrap();
    assert_eq!(second.token(), first.token());
    claim(&second).await.unwrap();
    let rejected = claim(&first).await;
    assert!(matches!(rejected, Err(ClaimError::Rejected { .. })), "{rejected:?}");
}
