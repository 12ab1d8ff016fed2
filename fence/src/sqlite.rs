//! The fence inside SQLite, 3.38 or newer.
//!
//! ```no_run
//! use fence::{Fence, ResourceName, sqlite};
//! use sqlx::SqlitePool;
//!
//! async fn withdraw(
//!     pool: &SqlitePool,
//!     account: &ResourceName,
//!     offered: &Fence,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut transaction = pool.begin_with("begin immediate").await?;
//!     sqlite::claim(&mut transaction, account, offered).await?;
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
//! Begin transactions with `begin immediate`: one that begins by reading can't write any more once
//! another connection has written. A rejection does not abort the transaction: roll it back, or drop
//! it.
//!
//! # Isolation
//! There is one writer at a time, so everything read after a claim is at least as new as the claim.

use sqlx::{Acquire, Connection, Sqlite, SqliteConnection};

use crate::{
    name::ResourceName,
    rejection::{ClaimError, Rejection, RejectionReason},
    rule::Fence,
    token::Token,
};

/// The primary result code of "another connection is writing".
const SQLITE_BUSY: u32 = 5;

/// The fence, in the order in which it is applied.
const FILES: [&str; 2] = [
    include_str!("../migrations/sqlite/0001_fence.sql"),
    include_str!("../migrations/sqlite/0002_protect.sql"),
];

/// Installs the fence in the connection's database, in one transaction. Once it is installed, this repairs what
/// is damaged, and changes nothing else.
///
/// # Errors
/// If SQLite fails, or if the database has a fence of another build. The error then says how to carry its fences
/// over. Nothing was changed.
///
/// # Cancellation safety
/// This future may be dropped, and the call repeated.
pub async fn install<'a>(database: impl Acquire<'a, Database = Sqlite>) -> Result<(), sqlx::Error> {
    let mut connection = database.acquire().await?;
    let mut transaction = connection.begin_with("begin immediate").await?;
    for file in FILES {
        sqlx::raw_sql(file).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Claims a resource inside the caller's transaction, and holds its fence until the transaction
/// ends.
///
/// Everything that the transaction reads afterwards is at least as new as the claim.
///
/// # Errors
/// [`ClaimError::Rejected`] if the rule rejects the offer; [`ClaimError::Contended`] if another connection is
/// writing. The transaction stays open: roll it back.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn claim(
    transaction: &mut SqliteConnection,
    resource: &ResourceName,
    offered: &Fence,
) -> Result<(), ClaimError<sqlx::Error>> {
    offer("insert into fence_claim values (?, ?, ?)", transaction, resource, offered).await
}

/// Claims a resource, and lets this transaction write its rows in protected tables.
///
/// Call [`withdraw`] before the commit: otherwise the commit fails.
///
/// # Errors
/// As [`claim`]; and [`ClaimError::Database`] if `foreign_keys` is off on this connection.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn present(
    transaction: &mut SqliteConnection,
    resource: &ResourceName,
    offered: &Fence,
) -> Result<(), ClaimError<sqlx::Error>> {
    let present = "insert into fence_presented (resource, token, holder) values (?, ?, ?)";
    offer(present, transaction, resource, offered).await
}

/// Withdraws everything that this transaction has [presented](present), so that it can commit.
///
/// # Errors
/// If SQLite fails.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn withdraw(transaction: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("delete from fence_presented").execute(transaction).await.map(|_| ())
}

/// Whether the whole transaction must be retried, because another connection is writing.
pub fn is_contention(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<u32>().ok());
    // The lowest byte of an extended result code is the primary one.
    code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

async fn offer(
    insert: &'static str,
    transaction: &mut SqliteConnection,
    resource: &ResourceName,
    offered: &Fence,
) -> Result<(), ClaimError<sqlx::Error>> {
    let inserted = sqlx::query(insert)
        .bind(resource.as_str())
        .bind(offered.token.as_i64())
        .bind(offered.holder.as_str())
        .execute(&mut *transaction)
        .await;
    let Err(error) = inserted else {
        return Ok(());
    };
    let Some(reason) = rejection_reason(&error) else {
        return Err(claim_error(resource, error));
    };
    // An error of SQLite can't carry the tokens.
    let highest_token =
        highest_token(transaction, resource).await.map_err(|error| claim_error(resource, error))?;
    let rejection = Rejection { reason, token: offered.token, highest_token };
    Err(ClaimError::Rejected { resource: resource.clone(), rejection })
}

async fn highest_token(
    transaction: &mut SqliteConnection,
    resource: &ResourceName,
) -> Result<Token, sqlx::Error> {
    let token: i64 = sqlx::query_scalar("select token from fence where resource = ?")
        .bind(resource.as_str())
        .fetch_one(transaction)
        .await?;
    Token::try_from(token).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn rejection_reason(error: &sqlx::Error) -> Option<RejectionReason> {
    let message = error.as_database_error()?.message();
    RejectionReason::from_code(message.split(' ').next()?)
}

fn claim_error(resource: &ResourceName, source: sqlx::Error) -> ClaimError<sqlx::Error> {
    let resource = resource.clone();
    if is_contention(&source) {
        ClaimError::Contended { resource, source }
    } else {
        ClaimError::Database { resource, source }
    }
}
