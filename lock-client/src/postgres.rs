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
//! The section "A table as a lock service" of the README says how clients wait, and which connections they
//! keep. A lock expires by the clock of the database. A request is one message and one transaction, and leaves
//! nothing in the session. So PgBouncer may stand in between, in any mode.
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
