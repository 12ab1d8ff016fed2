//! The fence inside PostgreSQL (13 or newer), in `migrations/postgres/fence`.
//!
//! ```no_run
//! # async fn withdraw(
//! #     pool: sqlx::PgPool, account: fence::ResourceName, token: fence::Token, holder: fence::Holder,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = pool.begin().await?;
//! fence::postgres::claim(&mut transaction, &account, token, &holder).await?;
//! let balance: i64 = sqlx::query_scalar("select balance from accounts where account_id = $1")
//!     .bind(account.as_str())
//!     .fetch_one(&mut *transaction)
//!     .await?;
//! sqlx::query("update accounts set balance = $2 where account_id = $1")
//!     .bind(account.as_str())
//!     .bind(balance - 30)
//!     .execute(&mut *transaction)
//!     .await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Isolation
//! Any level will do. At READ COMMITTED a claim waits for the one before it, and later statements see
//! what that one wrote. At REPEATABLE READ and SERIALIZABLE it fails with 40001 instead: try the whole
//! transaction again, and likewise after a deadlock, 40P01. Claim first, and read in a statement of its
//! own.

use sqlx::{
    Acquire, PgConnection, Postgres,
    migrate::{MigrateError, Migrator},
    postgres::PgDatabaseError,
};

use crate::{ClaimError, Holder, Refusal, ResourceName, Token};

/// Creates what the fence needs in the schema `fence`, or brings it up to date. Its bookkeeping is
/// `fence.migrations`, apart from that of the application's own migrations.
///
/// # Errors
/// If the database can't be reached, or refuses: it takes the right to create a schema.
///
/// # Cancellation safety
/// May be dropped, and called again.
pub async fn install<'a>(
    database: impl Acquire<'a, Database = Postgres>,
) -> Result<(), MigrateError> {
    let mut migrator: Migrator = sqlx::migrate!("migrations/postgres");
    migrator.create_schema("fence");
    migrator.dangerous_set_table_name("fence.migrations");
    migrator.run(database).await
}

/// Claims a resource inside the caller's transaction, until that ends. What is read after it, in the
/// same transaction, is no older than the claim.
///
/// # Errors
/// [`ClaimError::Refused`] if the rule refuses; [`ClaimError::Contended`] if the whole transaction is
/// to be tried again. After any error PostgreSQL has aborted the transaction.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn claim(
    transaction: &mut PgConnection,
    resource: &ResourceName,
    token: Token,
    holder: &Holder,
) -> Result<(), ClaimError<sqlx::Error>> {
    sqlx::query("select fence.claim($1, $2, $3)")
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
/// If PostgreSQL doesn't answer. A refusal comes with the write: see [`refusal`].
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn present(
    transaction: &mut PgConnection,
    token: Token,
    holder: &Holder,
) -> Result<(), sqlx::Error> {
    sqlx::query("select fence.present($1, $2)")
        .bind(token.as_i64())
        .bind(holder.as_str())
        .execute(transaction)
        .await
        .map(|_| ())
}

/// The refusal behind the error of a write to a protected table, if it is one.
pub fn refusal(error: &sqlx::Error) -> Option<Refusal> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    Refusal::told(error.code(), error.detail()?)
}

/// Whether the whole transaction is to be tried again: a snapshot that is older than somebody else's
/// claim, a deadlock, or a lock that was waited for too long.
pub fn is_contention(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ["40001", "40P01", "55P03"].contains(&&*code))
}

fn told(error: sqlx::Error) -> ClaimError<sqlx::Error> {
    match refusal(&error) {
        Some(refusal) => refusal.into(),
        None if is_contention(&error) => ClaimError::Contended(error),
        None => error.into(),
    }
}
