//! The fence inside MariaDB (10.5 or newer), in `migrations/mariadb/fence`.
//!
//! It is used like [`postgres`](crate::postgres), with the one difference that matters: after a
//! refusal, the transaction is not aborted. Roll it back, or drop it.
//!
//! # Isolation
//! Any level from READ COMMITTED will do, as long as the claim comes before the first read. At
//! REPEATABLE READ and SERIALIZABLE a transaction goes on reading what it saw first, even if it
//! claims later. After a deadlock, 1213, try the whole transaction again.

use sqlx::{
    Acquire, MySql, MySqlConnection,
    migrate::{MigrateError, Migrator},
    mysql::MySqlDatabaseError,
};

use crate::{ClaimError, Holder, Refusal, ResourceName, Token};

/// Creates what the fence needs in the connection's database, or brings it up to date. Its
/// bookkeeping is `fence_migrations`, apart from that of the application's own migrations.
///
/// # Errors
/// If the database can't be reached, or refuses: it takes the rights to create tables and routines.
///
/// # Cancellation safety
/// May be dropped, and called again.
pub async fn install<'a>(database: impl Acquire<'a, Database = MySql>) -> Result<(), MigrateError> {
    let mut migrator: Migrator = sqlx::migrate!("migrations/mariadb");
    migrator.dangerous_set_table_name("fence_migrations");
    migrator.run(database).await
}

/// Claims a resource inside the caller's transaction, until that ends. What is read after it, in the
/// same transaction, is no older than the claim, if nothing was read before.
///
/// # Errors
/// [`ClaimError::Refused`] if the rule refuses; [`ClaimError::Contended`] if the whole transaction is
/// to be tried again. The transaction goes on; roll it back.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn claim(
    transaction: &mut MySqlConnection,
    resource: &ResourceName,
    token: Token,
    holder: &Holder,
) -> Result<(), ClaimError<sqlx::Error>> {
    sqlx::query("call fence_claim(?, ?, ?)")
        .bind(resource.as_str())
        .bind(token.as_i64())
        .bind(holder.as_str())
        .execute(transaction)
        .await
        .map(|_| ())
        .map_err(told)
}

/// Sets what this transaction offers for the rows of protected tables that it writes without having
/// claimed their resources: for writes that depend on nothing that was read.
///
/// # Errors
/// If MariaDB doesn't answer. A refusal comes with the write: see [`refusal`].
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn present(
    transaction: &mut MySqlConnection,
    token: Token,
    holder: &Holder,
) -> Result<(), sqlx::Error> {
    sqlx::query("call fence_present(?, ?)")
        .bind(token.as_i64())
        .bind(holder.as_str())
        .execute(transaction)
        .await
        .map(|_| ())
}

/// The refusal behind the error of a write to a protected table, if it is one.
pub fn refusal(error: &sqlx::Error) -> Option<Refusal> {
    let error = error.as_database_error()?;
    let message = error.message();
    Refusal::told(&error.code()?, &message[message.find('{')?..])
}

/// Whether the whole transaction is to be tried again: a deadlock, a lock that was waited for too long,
/// or, with `innodb_snapshot_isolation`, a snapshot that is older than somebody else's claim.
pub fn is_contention(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| [1020, 1205, 1213].contains(&error.number()))
}

fn told(error: sqlx::Error) -> ClaimError<sqlx::Error> {
    match refusal(&error) {
        Some(refusal) => refusal.into(),
        None if is_contention(&error) => ClaimError::Contended(error),
        None => error.into(),
    }
}
