//! The rows that the databases answer with. All have the same columns.

use std::time::Duration;

use fence::{Holder, Token};
use sqlx::{
    Arguments, AssertSqlSafe, ColumnIndex, Database, Decode, Encode, Executor, Row, SqlSafeStr,
    Type,
};

use super::line::Statements;

use crate::{
    backend::{Attempt, Contention, HeldLock, Ownership, Status},
    clock::Moment,
};

/// An answer that this crate's SQL never makes.
pub(crate) type InvalidAnswer = Box<dyn std::error::Error + Send + Sync>;

/// A database that the driver knows, so that one code serves them all.
pub(crate) trait LockDatabase: Database {
    /// Sends statements as one message, and returns the only row of the answer.
    fn fetch_only(
        connection: &mut Self::Connection,
        statements: Statements,
    ) -> impl Future<Output = Result<Self::Row, sqlx::Error>> + Send;

    fn number(row: &Self::Row, column: &str) -> Result<Option<i64>, sqlx::Error>;

    fn text(row: &Self::Row, column: &str) -> Result<Option<String>, sqlx::Error>;
}

impl<D: Database> LockDatabase for D
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Decode<'t, D> + Type<D>,
    for<'t> i64: Decode<'t, D> + Type<D>,
    for<'t> &'t str: ColumnIndex<D::Row>,
{
    async fn fetch_only(
        connection: &mut D::Connection,
        Statements { sql, arguments }: Statements,
    ) -> Result<D::Row, sqlx::Error> {
        let mut values = None;
        for argument in arguments {
            let values = values.get_or_insert_with(D::Arguments::default);
            values.add(argument).map_err(sqlx::Error::Encode)?;
        }
        // All of the answer is read: the row comes before the outcome of the commit.
        let rows = connection.fetch_all((AssertSqlSafe(sql).into_sql_str(), values)).await;
        rows?.pop().ok_or(sqlx::Error::RowNotFound)
    }

    fn number(row: &D::Row, column: &str) -> Result<Option<i64>, sqlx::Error> {
        row.try_get(column)
    }

    fn text(row: &D::Row, column: &str) -> Result<Option<String>, sqlx::Error> {
        row.try_get(column)
    }
}

fn unsigned<D: LockDatabase>(row: &D::Row, column: &str) -> Result<Option<u64>, sqlx::Error> {
    Ok(D::number(row, column)?.and_then(|number| number.try_into().ok()))
}

fn millis<D: LockDatabase>(row: &D::Row, column: &str) -> Result<Option<Duration>, sqlx::Error> {
    Ok(unsigned::<D>(row, column)?.map(Duration::from_millis))
}

/// Reads a token; `None` if there is none.
pub(crate) fn token<D: LockDatabase>(
    row: &D::Row,
    column: &str,
) -> Result<Option<Token>, InvalidAnswer> {
    Ok(D::number(row, column)?.map(Token::try_from).transpose()?)
}

/// Reads the answer to an attempt that was sent after `asked`.
pub(crate) fn attempt<D: LockDatabase>(
    row: &D::Row,
    holder: &Holder,
    asked: Moment,
) -> Result<Attempt, InvalidAnswer> {
    if let (Some(token), Some(grant)) = (token::<D>(row, "token")?, token::<D>(row, "granted")?) {
        let ownership = Ownership { holder: holder.clone(), grant };
        return Ok(Attempt::Granted { token, ownership, asked });
    }
    Ok(Attempt::Busy(Contention {
        remaining: millis::<D>(row, "remaining_ms")?,
        ahead: unsigned::<D>(row, "ahead")?,
        nap: millis::<D>(row, "nap_ms")?,
    }))
}

pub(crate) fn status<D: LockDatabase>(row: &D::Row) -> Result<Status, InvalidAnswer> {
    let held = match D::text(row, "holder")? {
        None => None,
        Some(holder) => {
            let missing = || InvalidAnswer::from("a lock is held without a token");
            let grant = token::<D>(row, "granted")?.ok_or_else(missing)?;
            Some(HeldLock {
                token: token::<D>(row, "token")?.ok_or_else(missing)?,
                ownership: Ownership { holder: holder.parse()?, grant },
                remaining: millis::<D>(row, "remaining_ms")?,
                since_ms: unsigned::<D>(row, "since_ms")?,
                label: D::text(row, "label")?.unwrap_or_default(),
                nodes: None,
            })
        }
    };
    let queued = unsigned::<D>(row, "queued")?.unwrap_or_default();
    Ok(Status { held, last_token: unsigned::<D>(row, "token")?, queued })
}
