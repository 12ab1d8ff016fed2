//! The rows that the databases answer with. All have the same columns.

use std::time::Duration;

use fence::{Holder, Token};
use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::{
    backend::{Attempt, Contention, HeldLock, Ownership, Status},
    clock::Moment,
};

/// An answer that this crate's SQL never makes.
pub(crate) type InvalidAnswer = Box<dyn std::error::Error + Send + Sync>;

/// A row with columns of numbers and texts.
pub(crate) trait Columns {
    fn number(&self, column: &str) -> Result<Option<i64>, sqlx::Error>;
    fn text(&self, column: &str) -> Result<Option<String>, sqlx::Error>;

    /// A number that is never negative.
    fn unsigned(&self, column: &str) -> Result<Option<u64>, sqlx::Error> {
        Ok(self.number(column)?.and_then(|number| number.try_into().ok()))
    }

    fn millis(&self, column: &str) -> Result<Option<Duration>, sqlx::Error> {
        Ok(self.unsigned(column)?.map(Duration::from_millis))
    }
}

impl<R: Row> Columns for R
where
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'s> &'s str: ColumnIndex<R>,
{
    fn number(&self, column: &str) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(column)
    }

    fn text(&self, column: &str) -> Result<Option<String>, sqlx::Error> {
        self.try_get(column)
    }
}

/// Reads a token; `None` if there is none.
pub(crate) fn token(row: &impl Columns, column: &str) -> Result<Option<Token>, InvalidAnswer> {
    Ok(row.number(column)?.map(Token::try_from).transpose()?)
}

/// Reads the answer to an attempt that was sent after `asked`.
pub(crate) fn attempt(
    row: &impl Columns,
    holder: &Holder,
    asked: Moment,
) -> Result<Attempt, InvalidAnswer> {
    if let (Some(token), Some(grant)) = (token(row, "token")?, token(row, "granted")?) {
        let ownership = Ownership { holder: holder.clone(), grant };
        return Ok(Attempt::Granted { token, ownership, asked });
    }
    Ok(Attempt::Busy(Contention {
        remaining: row.millis("remaining_ms")?,
        ahead: row.unsigned("ahead")?,
        nap: row.millis("nap_ms")?,
    }))
}

/// Reads the state of a lock.
pub(crate) fn status(row: &impl Columns) -> Result<Status, InvalidAnswer> {
    let held = match row.text("holder")? {
        None => None,
        Some(holder) => {
            let missing = || InvalidAnswer::from("a lock is held without a token");
            let grant = token(row, "granted")?.ok_or_else(missing)?;
            Some(HeldLock {
                token: token(row, "token")?.ok_or_else(missing)?,
                ownership: Ownership { holder: holder.parse()?, grant },
                remaining: row.millis("remaining_ms")?,
                since_ms: row.unsigned("since_ms")?,
                label: row.text("label")?.unwrap_or_default(),
                nodes: None,
            })
        }
    };
    let queued = row.unsigned("queued")?.unwrap_or_default();
    Ok(Status { held, last_token: row.unsigned("token")?, queued })
}
