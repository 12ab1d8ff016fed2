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
//! A client that waits has two connections: one for tries, and one that listens. The connection over
//! which a lock was granted is kept for held locks, and checked every second. If it is lost, it is made
//! again before any other. One that does not answer is replaced, and waited for up to 5 minutes. At most
//! three are replaced in 15 seconds: if the server answers nothing, some 60 collect. A request is one
//! message and one transaction. It leaves nothing in the session, so PgBouncer may stand in between, in any
//! mode. A client that is paused keeps no row locked.
//!
//! A request whose reply was lost is [`Unavailable`](crate::backend::BackendError::Unavailable): it may
//! have been carried out.

mod client;
mod notifications;
mod primary;

use sqlx::{Acquire, Executor};

pub use self::{client::Postgres, primary::with_environment};

const FILES: [&str; 3] = [
    include_str!("../migrations/postgres/0001_schema.sql"),
    include_str!("../migrations/postgres/0002_functions.sql"),
    include_str!("../migrations/postgres/0003_rights.sql"),
];

/// Installs the locks in the schema `fenced_lock`, or repairs their functions.
///
/// Applies the files of `migrations/postgres/lock` in one transaction. Locks and grants stay as they
/// are. Clients need `grant usage on schema fenced_lock`.
///
/// # Errors
/// If the database doesn't answer, or denies the right to create a schema; if the schema
/// `fenced_lock` or an object in it belongs to another role; if an earlier build is installed.
///
/// # Cancellation safety
/// This future may be dropped, and the call repeated.
pub async fn install<'a>(
    database: impl Acquire<'a, Database = sqlx::Postgres>,
) -> Result<(), sqlx::Error> {
    let mut transaction = database.begin().await?;
    for file in FILES {
        transaction.execute(file).await?;
    }
    transaction.commit().await
}
