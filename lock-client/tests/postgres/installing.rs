//! Installing the locks: over nothing, over themselves, and over an earlier build.

use fence::Holder;
use lock_client::{backend::Backend, postgres::install};
use sqlx::{Connection, Executor, PgConnection, postgres::PgDatabaseError};

use super::{locked, patient};
use crate::{lock_service::ttl, names::name, sql::granted};

#[tokio::test]
async fn installing_again_keeps_locks_and_grants() {
    let (server, client) = locked().await;
    let mut owner = PgConnection::connect(&server.url()).await.unwrap();
    let (_, held) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let revoke = "
        create role app; grant usage on schema fenced_lock to app;
        revoke execute on function fenced_lock.release from public";
    owner.execute(revoke).await.unwrap();
    let lock = name("r");
    for _ in 0..3 {
        let (installed, renewed) =
            tokio::join!(install(&mut owner), client.renew(&lock, &held, ttl(600_000)));
        installed.unwrap();
        assert_eq!(renewed.unwrap(), Some(held.grant));
    }
    let rights = "
        select has_schema_privilege('app', 'fenced_lock', 'usage')
            and not has_function_privilege('app', 'fenced_lock.release(text, text)', 'execute')
            and has_function_privilege('app', 'fenced_lock.status(text)', 'execute')";
    assert!(sqlx::query_scalar::<_, bool>(rights).fetch_one(&mut owner).await.unwrap());
}

#[tokio::test]
async fn default_privileges_open_no_table() {
    let server = testbed::Postgres::start().await.unwrap();
    let mut owner = PgConnection::connect(&server.url()).await.unwrap();
    let defaults = "
        create role app;
        alter default privileges grant all on tables to app, public;
        alter default privileges grant all on sequences to app, public;
        alter default privileges grant all on schemas to app, public";
    owner.execute(defaults).await.unwrap();
    let open = "
        select has_schema_privilege('app', 'fenced_lock', 'usage')
            or has_schema_privilege('app', 'fenced_lock', 'create')
            or has_table_privilege('app', 'fenced_lock.lock', 'select, update')
            or has_table_privilege('app', 'fenced_lock.queue', 'select, update')";
    // The negative control: the same privileges open any other table.
    let other = "create schema other; create table other.lock (name text)";
    owner.execute(other).await.unwrap();
    let is_open = "select has_table_privilege('app', 'other.lock', 'update')";
    assert!(sqlx::query_scalar::<_, bool>(is_open).fetch_one(&mut owner).await.unwrap());
    install(&mut owner).await.unwrap();
    assert!(!sqlx::query_scalar::<_, bool>(open).fetch_one(&mut owner).await.unwrap());
}

#[tokio::test]
async fn earlier_build_is_recognised_and_its_locks_can_be_carried_over() {
    let (server, client) = locked().await;
    let mut owner = PgConnection::connect(&server.url()).await.unwrap();
    let (token, held) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let later = "
        create or replace function fenced_lock.version() returns integer language sql
        as 'select 8'";
    owner.execute(later).await.unwrap();
    let rejected = install(&mut owner).await.unwrap_err().to_string();
    assert!(rejected.contains("another build: its version is 8"), "{rejected}");
    // As every earlier build was.
    owner.execute("drop function fenced_lock.version").await.unwrap();
    let rejected = install(&mut owner).await.unwrap_err();
    let rejected = rejected.as_database_error().unwrap().downcast_ref::<PgDatabaseError>();
    assert!(rejected.message().contains("another build: its version is 0"), "{rejected}");

    // As the hint says.
    let [aside, carry, clear] = [
        "alter schema fenced_lock rename to lock_before",
        "insert into fenced_lock.lock select * from lock_before.lock",
        "drop schema lock_before cascade",
    ];
    for step in [aside, carry, clear] {
        assert!(rejected.hint().unwrap().contains(step), "{rejected}");
    }
    let mut transaction = owner.begin().await.unwrap();
    transaction.execute(aside).await.unwrap();
    install(&mut *transaction).await.unwrap();
    for step in [carry, clear] {
        transaction.execute(step).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let client = patient(&server.url());
    assert_eq!(client.renew(&name("r"), &held, ttl(600_000)).await.unwrap(), Some(token));
}
