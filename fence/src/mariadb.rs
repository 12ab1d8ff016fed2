//! The fence inside MariaDB, 10.5 or newer.
//!
//! ```no_run
//! use fence::{Fence, ResourceName, mariadb};
//! use sqlx::MySqlPool;
//!
//! async fn withdraw(
//!     pool: &MySqlPool,
//!     account: &ResourceName,
//!     offered: &Fence,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut transaction = pool.begin().await?;
//!     mariadb::claim(&mut transaction, account, offered).await?;
//!     let balance: i64 = sqlx::query_scalar("select balance from accounts where account_id = ?")
//!         .bind(account.as_str())
//!         .fetch_one(&mut *transaction)
//!         .await?;
//!     sqlx::query("update accounts set balance = ? where account_id = ?")
//!         .bind(balance - 30)
//!         .bind(account.as_str())
//!         .execute(&mut *transaction)
//!         .await?;
//!     transaction.commit().await?;
//!     Ok(())
//! }
//! ```
//!
//! A rejection does not abort the transaction: roll it back, or drop it.
//!
//! # Isolation
//! Every level from READ COMMITTED on is safe. At REPEATABLE READ a transaction keeps reading the
//! state of its first read: if the resource was claimed since, the claim fails with 40001. Claim
//! before the first read. After 40001, a deadlock included, retry the whole transaction.

use sqlx::{Acquire, MySql, MySqlConnection, mysql::MySqlDatabaseError};

use crate::{
    name::ResourceName,
    rejection::{ClaimError, Rejection},
    rule::Fence,
};

/// The files that install the fence, in order.
const FILES: [&str; 3] = [
    include_str!("../migrations/mariadb/0001_fence.sql"),
    include_str!("../migrations/mariadb/0002_protect.sql"),
    include_str!("../migrations/mariadb/0003_status.sql"),
];

/// Installs the fence in the database `fence`. May be called again, also while clients write: fences, protections and
/// grants stay, and damaged routines are repaired.
///
/// # Errors
/// If the database doesn't answer, or denies the rights to create databases, tables and routines; if the server has the
/// fence of another build, before anything is changed.
///
/// # Cancellation safety
/// This future may be dropped, and the call repeated.
pub async fn install<'a>(database: impl Acquire<'a, Database = MySql>) -> Result<(), sqlx::Error> {
    let mut database = database.acquire().await?;
    for file in FILES {
        sqlx::raw_sql(file).execute(&mut *database).await?;
    }
    Ok(())
}

/// Claims a resource inside the caller's transaction, and holds its fence until the transaction
/// ends.
///
/// Everything that the transaction reads afterwards is at least as new as the claim, if it has read
/// nothing before.
///
/// # Errors
/// [`ClaimError::Rejected`] if the rule rejects the offer; [`ClaimError::Contended`] if the whole transaction
/// must be retried. The transaction stays open: roll it back.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn claim(
    transaction: &mut MySqlConnection,
    resource: &ResourceName,
    offered: &Fence,
) -> Result<(), ClaimError<sqlx::Error>> {
    sqlx::query("call fence.claim(?, ?, ?)")
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
/// If MariaDB doesn't answer. A rejection is the error of the write: see [`rejection`].
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn present(
    transaction: &mut MySqlConnection,
    offered: &Fence,
) -> Result<(), sqlx::Error> {
    sqlx::query("call fence.present(?, ?)")
        .bind(offered.token.as_i64())
        .bind(offered.holder.as_str())
        .execute(transaction)
        .await
        .map(|_| ())
}

/// Returns the rejection in the error of a write to a protected table, if it is one.
pub fn rejection(error: &sqlx::Error) -> Option<Rejection> {
    let error = error.as_database_error()?;
    let message = error.message();
    Rejection::parse(&error.code()?, &message[message.find('{')?..])
}

/// Whether the whole transaction must be retried.
///
/// That is so after a deadlock and after `innodb_lock_wait_timeout`. With
/// `innodb_snapshot_isolation`, it is also so after another transaction claimed a resource since
/// this one's snapshot.
pub fn is_contention(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| [1020, 1205, 1213].contains(&error.number()))
}

fn claim_error(resource: &ResourceName, source: sqlx::Error) -> ClaimError<sqlx::Error> {
    let resource = resource.clone();
    match rejection(&source) {
        Some(rejection) => ClaimError::Rejected { resource, rejection },
        None if is_contention(&source) => ClaimError::Contended { resource, source },
        None => ClaimError::Database { resource, source },
    }
}
