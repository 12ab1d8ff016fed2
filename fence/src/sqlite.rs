//! The fence inside SQLite (3.38 or newer), in `migrations/sqlite/fence`.
//!
//! It is used like [`postgres`](crate::postgres), in transactions begun with
//! `pool.begin_with("begin immediate")`: one that begins by reading can't write once somebody else
//! has written. After a refusal the transaction is not aborted; roll it back, or drop it.
//!
//! # Isolation
//! There is one writer at a time, so what is read after a claim is no older than the claim.

use sqlx::{
    Acquire, Sqlite, SqliteConnection,
    migrate::{MigrateError, Migrator},
};

use crate::{ClaimError, Holder, Refusal, RefusalReason, ResourceName, Token};

/// Creates what the fence needs in the connection's database, or brings it up to date. Its
/// bookkeeping is `fence_migrations`, apart from that of the application's own migrations.
///
/// # Errors
/// If the database can't be used.
///
/// # Cancellation safety
/// May be dropped, and called again.
pub async fn install<'a>(
    database: impl Acquire<'a, Database = Sqlite>,
) -> Result<(), MigrateError> {
    let mut migrator: Migrator = sqlx::migrate!("migrations/sqlite");
    migrator.dangerous_set_table_name("fence_migrations");
    migrator.run(database).await
}

/// Claims a resource inside the caller's transaction, until that ends. What is read after it, in the
/// same transaction, is no older than the claim.
///
/// # Errors
/// [`ClaimError::Refused`] if the rule refuses. The transaction goes on; roll it back.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn claim(
    transaction: &mut SqliteConnection,
    resource: &ResourceName,
    token: Token,
    holder: &Holder,
) -> Result<(), ClaimError<sqlx::Error>> {
    offer("insert into fence_claim values (?, ?, ?)", transaction, resource, token, holder).await
}

async fn offer(
    statement: &'static str,
    transaction: &mut SqliteConnection,
    resource: &ResourceName,
    token: Token,
    holder: &Holder,
) -> Result<(), ClaimError<sqlx::Error>> {
    let claimed = sqlx::query(statement)
        .bind(resource.as_str())
        .bind(token.as_i64())
        .bind(holder.as_str())
        .execute(&mut *transaction)
        .await;
    let Err(error) = claimed else {
        return Ok(());
    };
    let Some(reason) = refusal(&error) else {
        return Err(told(error));
    };
    let highest_token: i64 = sqlx::query_scalar("select token from fence where resource = ?")
        .bind(resource.as_str())
        .fetch_one(transaction)
        .await?;
    let highest_token =
        Token::try_from(highest_token).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Err(Refusal { reason, token, highest_token }.into())
}

/// Claims a resource, and lets this transaction write its rows in protected tables until [`withdraw`],
/// which has to come before the commit.
///
/// # Errors
/// [`ClaimError::Refused`] if the rule refuses; [`ClaimError::Database`] if the connection doesn't have
/// `foreign_keys` on, too.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn present(
    transaction: &mut SqliteConnection,
    resource: &ResourceName,
    token: Token,
    holder: &Holder,
) -> Result<(), ClaimError<sqlx::Error>> {
    let present = "insert into fence_presented (resource, token, holder) values (?, ?, ?)";
    offer(present, transaction, resource, token, holder).await
}

/// Ends what [`present`] began, so that the transaction can be committed.
///
/// # Errors
/// If SQLite fails.
///
/// # Cancellation safety
/// If this future is dropped, roll the transaction back.
pub async fn withdraw(transaction: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("delete from fence_presented").execute(transaction).await.map(|_| ())
}

/// Tells a refusal of a claim by its error. SQLite's errors have no room for the tokens; the table
/// `fence` has the highest.
fn refusal(error: &sqlx::Error) -> Option<RefusalReason> {
    let message = error.as_database_error()?.message();
    RefusalReason::of_code(message.split(' ').next()?)
}

/// Whether the whole transaction is to be tried again: another connection is writing (BUSY).
pub fn is_contention(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // The primary result code is in the lowest byte.
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == 5)
}

fn told(error: sqlx::Error) -> ClaimError<sqlx::Error> {
    if is_contention(&error) { ClaimError::Contended(error) } else { error.into() }
}
