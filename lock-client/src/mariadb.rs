//! Locks in a table of MariaDB, 10.5 or newer.
//!
//! The tables `fenced_lock` and `fenced_lock_queue` and the procedures `fenced_lock_…` must be in the
//! database of the URL: by [`install`], or by the files in `migrations/mariadb/lock`.
//!
//! **Where the token comes from.** Each lock is a row with a counter. A procedure locks the row, takes
//! the lock if it is free, and increments the counter. The new count is the token.
//!
//! **Why it grows.** The procedure reads row and clock once the row is locked. The counter is in the
//! row, and a release empties the row without deleting it. A missing row starts at the client's Unix
//! time in milliseconds: above every token that a lost table ever issued, unless clocks went back or
//! the lock was granted more than 1 000 times a second throughout.
//!
//! **What breaks that.** A MariaDB that loses commits: `innodb_flush_log_at_trx_commit` other than 1,
//! a binary log with `sync_binlog` other than 1, a replica that is promoted and lags behind, several
//! writable nodes, or a restored backup. With a binary log, a restart rolls back each transaction that
//! the log has lost, and `sync_binlog` is 0 by default. `lock-client doctor` finds both. Then a token may
//! be issued twice. The storage distinguishes the two holders, and rejects the later one. If that holder
//! holds the lock, it continues with a higher token ([`Lease::reissue`](crate::Lease::reissue)).
//!
//! The section "A table as a lock service" of the README says how clients wait, and which connections they
//! keep. A lock expires by the clock of the database. Of a server with the option `--sysdate-is-now`, don't
//! expect exact times: a ttl may be shorter.
//!
//! A request whose reply was lost is [`Unavailable`](crate::backend::BackendError::Unavailable): it may
//! have been carried out.

mod client;

use sqlx::{Acquire, MySql};

pub use self::client::MariaDb;

/// Installs the locks in the connection's database. May be called again, also while clients use them.
///
/// Clients need the right EXECUTE on the procedures, and none on the tables.
///
/// # Errors
/// If the database doesn't answer, or denies the rights to create tables and routines.
///
/// # Cancellation safety
/// This future may be dropped, and the call repeated.
pub async fn install<'a>(database: impl Acquire<'a, Database = MySql>) -> Result<(), sqlx::Error> {
    let mut database = database.acquire().await?;
    let file = include_str!("../migrations/mariadb/0001_lock.sql");
    sqlx::raw_sql(file).execute(&mut *database).await.map(|_| ())
}
