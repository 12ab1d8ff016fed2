//! The fence inside PostgreSQL, 13 or newer.
//!
//! ```no_run
//! use fence::{Fence, ResourceName, postgres};
//! use sqlx::PgPool;
//!
//! async fn withdraw(
//!     pool: &PgPool,
//!     account: &ResourceName,
//!     offered: &Fence,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut transaction = pool.begin().await?;
//!     postgres::claim(&mut transaction, account, offered).await?;
//!     let balance: i64 = sqlx::query_scalar("select balance from accounts where account_id = $1")
//!         .bind(account.as_str())
//!         .fetch_one(&mut *transaction)
//!         .await?;
//!     sqlx::query("update accounts set balance = $2 where account_id = $1")
//!         .bind(account.as_str())
//!         .bind(balance - 30)
//!         .execute(&mut *transaction)
//!         .await?;
//!     transaction.commit().await?;
//!     Ok(())
//! }
//! ```
//!
//! # Isolation
//! Every level is safe. At READ COMMITTED a claim waits for the previous one, and later statements
//! see what the previous transaction wrote. At REPEATABLE READ and SERIALIZABLE the claim fails
//! with 40001 instead: retry the whole transaction. After a deadlock, 40P01, retry it as well.
//! Claim first, and read in a later statement.

use sqlx::{Acquire, Executor, PgConnection, Postgres, postgres::PgDatabaseError};

use crate::{
    name::ResourceName,
    rejection::{ClaimError, Rejection},
    rule::Fence,
};

const FILES: [&str; 6] = [
    include_str!("../migrations/postgres/0001_schema.sql"),
    include_str!("../migrations/postgres/0002_claim.sql"),
    include_str!("../migrations/postgres/0003_protect.sql"),
    include_str!("../migrations/postgres/0004_tables.sql"),
    include_str!("../migrations/postgres/0005_status.sql"),
    include_str!("../migrations/postgres/0006_rights.sql"),
];

/// Installs the fence in the schema `fence`, or repairs it.
///
/// Applies the files of `migrations/postgres/fence` in one transaction. Fences, protected tables and
/// grants stay as they are.
///
/// # Errors
/// If the database doesn't answer, or denies the right to create a schema; if the schema `fence` or
/// an object in it belongs to another role; if another build of the fence is installed.
///
/// # Cancellation safety
/// This future may be dropped, and the call repeated.
pub async fn install<'a>(
    database: impl Acquire<'a, Database = Postgres>,
) -> Result<(), sqlx::Error> {
    let mut transaction = database.begin().await?;
    for file in FILES {
        transaction.execute(file).await?;
    }
    transaction.commit().await
}

/// Claims a resource inside the caller's transaction, and holds its fence until the transaction
/// ends.
///
/// Everything that the transaction reads afterwards is at least as new as the claim.
///
/// # Errors
/// [`ClaimError::Rejected`] if the rule rejects the offer; [`ClaimError::Contended`] if the whole transaction
/// must be retried. PostgreSQL aborts the transaction after any error.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn claim(
    transaction: &mut PgConnection,
    resource: &ResourceName,
    offered: &Fence,
) -> Result<(), ClaimError<sqlx::Error>> {
    sqlx::query("select fence.claim($1, $2, $3)")
        .bind(resource.as_str())
        .bind(offered.token.as_i64())
        .bind(offered.holder.as_str())
        .execute(transaction)
        .await
        .map(|_| ())
        .map_err(|error| claim_error(resource, error))
}

/// Presents a token and holder for this transaction's blind writes to protected tables.
///
/// A blind write depends on nothing that was read. Each row that it writes claims its resource with
/// the presented token, unless the transaction has already claimed the resource.
///
/// # Errors
/// If PostgreSQL doesn't answer. A rejection is the error of the write: see [`rejection`].
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn present(transaction: &mut PgConnection, offered: &Fence) -> Result<(), sqlx::Error> {
    sqlx::query("select fence.present($1, $2)")
        .bind(offered.token.as_i64())
        .bind(offered.holder.as_str())
        .execute(transaction)
        .await
        .map(|_| ())
}

/// Returns the rejection in the error of a write to a protected table, if it is one.
pub fn rejection(error: &sqlx::Error) -> Option<Rejection> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    Rejection::parse(error.code(), error.detail()?)
}

/// Whether the whole transaction must be retried.
///
/// That is so after another transaction claimed a resource since this one's snapshot, after a
/// deadlock, and after `lock_timeout`.
pub fn is_contention(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ["40001", "40P01", "55P03"].contains(&&*code))
}

fn claim_error(resource: &ResourceName, source: sqlx::Error) -> ClaimError<sqlx::Error> {
    let resource = resource.clone();
    match rejection(&source) {
        Some(rejection) => ClaimError::Rejected { resource, rejection },
        None if is_contention(&source) => ClaimError::Contended { resource, source },
        None => ClaimError::Database { resource, source },
    }
}
