//! Locks in a file of SQLite, 3.38 or newer, for the processes of one machine.
//!
//! The tables `fenced_lock` and `fenced_lock_queue` must be in the file: by [`install`], or by the
//! files in `migrations/sqlite/lock`.
//!
//! **Where the token comes from.** Each lock is a row with a counter. A transaction takes the lock if
//! it is free, and increments the counter. The new count is the token.
//!
//! **Why it grows.** SQLite runs one writing transaction at a time (`begin immediate`). The counter is
//! in the row, and a release empties the row without deleting it. A grant is reported only once it is
//! on the disk (`synchronous = FULL`). A missing row starts at the Unix time in milliseconds: above
//! every token that a lost table ever issued, unless clocks went back or the lock was granted more
//! than 1 000 times a second throughout.
//!
//! **What breaks that.** A restored backup of the file, a disk that loses synced writes, and a network
//! file system whose file locks don't work. Then a token may be issued twice. The storage
//! distinguishes the two holders, and rejects the later one. If that holder holds the lock, it
//! continues with a higher token ([`Lease::reissue`](crate::Lease::reissue)).
//!
//! The section "A table as a lock service" of the README says how clients wait. A lock expires by the clock of
//! the machine.
//!
//! # A file that is locked
//! Another process may keep the file locked, by a long transaction or because it is paused. Then each
//! request is [`Unavailable`](crate::backend::BackendError::Unavailable) within the answer time-out.
//!
//! If a second copy of SQLite, or the program itself, closes the file, the process loses all its locks on it.
//! So link one copy, and copy the file in another process.

mod client;
mod statements;

use sqlx::{Acquire, Connection};

pub use self::client::Sqlite;

/// Installs the locks in the connection's database, in one transaction. Once they are installed, this repairs
/// what is damaged, and changes nothing else.
///
/// # Errors
/// If SQLite fails, or if the database has locks of an earlier build. The error then says how to carry their
/// tokens over. Nothing was changed.
///
/// # Cancellation safety
/// This future may be dropped, and the call repeated.
pub async fn install<'a>(
    database: impl Acquire<'a, Database = sqlx::Sqlite>,
) -> Result<(), sqlx::Error> {
    let mut connection = database.acquire().await?;
    let mut transaction = connection.begin_with("begin immediate").await?;
    let locks = include_str!("../migrations/sqlite/0001_lock.sql");
    sqlx::raw_sql(locks).execute(&mut *transaction).await?;
    transaction.commit().await
}
