//! Locks in a table of PostgreSQL, 13 or newer.
//!
//! The schema `fenced_lock` must be installed in the database, by [`install`] or by the files in
//! `migrations/postgres/lock`.
//!
//! **Where the token comes from.** Each lock is a row with a counter. One statement takes the lock if
//! it is free, and increments the counter. The new count is the token.
//!
//! **Why it grows.** The statement locks the row, and checks its latest version. The counter is in the
//! row, and a release empties the row without deleting it. A grant is reported only after its commit
//! is on the disk, whatever `synchronous_commit` is. A missing row starts at the client's Unix time in
//! milliseconds: above every token that a lost table ever issued, unless clocks went back or the lock
//! was granted more than 1 000 times a second throughout.
//!
//! **What breaks that.** A PostgreSQL that loses commits: `fsync = off`, a replica that is promoted
//! and lags behind, or a restored backup. Then a token may be issued twice. The storage distinguishes
//! the two holders, and rejects the later one. If that holder holds the lock, it continues with a
//! higher token ([`Lease::reissue`](crate::Lease::reissue)).
//!
//! # Clocks
//! A lock expires by the clock of the database. If this clock jumps ahead, locks expire too early.
//!
//! # Waiting
//! A release notifies the waiters by NOTIFY, on the channel `fenced_lock`. All waiters of a client
//! listen over one connection. The client checks every few seconds that a notification of its own
//! arrives. If none does, as behind PgBouncer in transaction mode, its waiters try once a second or
//! more often. In the fair order, a table is the queue. Each waiter shows every second that it is
//! alive, and a waiter that was silent for 3 seconds is skipped.
//!
//! # Connections
//! A client has up to four connections for tries and releases, up to two for renewals, and one more
//! while it waits. A connection that does not answer is replaced, and kept for up to 5 minutes. A
//! request is one message and one transaction. It leaves nothing in the session, so PgBouncer may stand
//! in between, in any mode. A client that is paused keeps no row locked.
//!
//! # Lost connections
//! A connection is made when it is first needed, and again after an error. A request whose reply was
//! lost is [`Unavailable`](crate::backend::BackendError::Unavailable): it may have been carried out.

mod client;
mod failure;
mod notifications;

use sqlx::{
    Acquire, Executor,
    migrate::{MigrateError, Migrator},
};

pub use self::client::Postgres;
pub use crate::sql::InvalidDatabaseUrl;

/// Installs the locks in the schema `fenced_lock`, or upgrades them.
///
/// Its record of applied migrations is the table `fenced_lock.migrations`, apart from the
/// application's own. Clients need `grant usage on schema fenced_lock`.
///
/// # Errors
/// If the database doesn't answer, or denies the right to create a schema, or if the schema
/// `fenced_lock` or an object in it belongs to another role.
///
/// # Cancellation safety
/// This future may be dropped, and the call repeated.
pub async fn install<'a>(
    database: impl Acquire<'a, Database = sqlx::Postgres>,
) -> Result<(), MigrateError> {
    let mut migrator: Migrator = sqlx::migrate!("migrations/postgres");
    migrator.create_schema("fenced_lock");
    migrator.dangerous_set_table_name("fenced_lock.migrations");
    let mut database = database.acquire().await?;
    // The migrator writes its record into the schema before it applies a file.
    let owner = include_str!("../migrations/postgres/0000_owner.sql");
    let check = owner.split_inclusive("\n$$;\n").next().expect("a split yields at least one part");
    database.execute(check).await?;
    migrator.run(&mut *database).await
}
