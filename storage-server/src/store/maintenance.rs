//! Changes that only an operator makes, by a command, beside the servers that use the database.
//!
//! Each is one statement, one transaction, or one conditional write. Servers compare a row and the common
//! fence with what they loaded before they change anything, so all of this is safe while they run.

use std::ops::Range;

use async_trait::async_trait;
use fence::{Fence, ResourceName, Token};

use super::{
    columns::{answers_from_column, fence_from_columns},
    error::OpenError,
    from_row::from_row,
    list::end_of_prefix,
    object_storage::maintenance::ObjectStorageMaintenance,
    open::DatabaseKind,
    postgres::maintenance::PostgresMaintenance,
    sqlite::maintenance::SqliteMaintenance,
};
use crate::sequence::{Answers, InvalidAnswers};

/// How many resources are deleted in one transaction. Servers wait that long.
const PORTION: i64 = 1000;

/// A database, for an operator's commands.
#[async_trait]
pub(crate) trait Maintenance: Send {
    /// Loads a resource's row as it is stored, readable or not.
    async fn stored(&mut self, resource: &ResourceName) -> Result<Option<StoredRow>, sqlx::Error>;

    /// Sets a resource's fence, and returns whether it did: only if the row still is `before`. Makes
    /// a row if there is none. Forgets the unreadable columns.
    async fn set_fence(
        &mut self,
        resource: &ResourceName,
        before: Option<&StoredRow>,
        fence: &Fence,
        forget: Unreadable,
    ) -> Result<bool, sqlx::Error>;

    /// Loads the common fence.
    async fn common_fence(&mut self) -> Result<Option<Token>, sqlx::Error>;

    /// Sets the common fence, and returns whether it did: only if it still is `before`. Every decision that
    /// is made later obeys it.
    async fn set_common_fence(
        &mut self,
        before: Option<Token>,
        common_fence: Token,
    ) -> Result<bool, sqlx::Error>;

    /// Counts the resources in a range of names.
    async fn count(&mut self, names: &Range<String>) -> Result<Counted, sqlx::Error>;

    /// Deletes up to `limit` resources in a range of names, and returns how many.
    async fn delete(&mut self, names: &Range<String>, limit: i64) -> Result<u64, sqlx::Error>;
}

/// Opens the database at a URL, whose schema must be up to date.
pub(crate) async fn open_maintenance(url: &str) -> Result<Box<dyn Maintenance>, OpenError> {
    Ok(match DatabaseKind::from_url(url)? {
        DatabaseKind::Sqlite => Box::new(SqliteMaintenance::open(url).await?),
        DatabaseKind::Postgres => Box::new(PostgresMaintenance::connect(url).await?),
        DatabaseKind::ObjectStorage => Box::new(ObjectStorageMaintenance::open(url)?),
    })
}

/// The names that begin with a prefix.
pub(crate) fn names_with_prefix(prefix: &str) -> Range<String> {
    prefix.to_owned()..end_of_prefix(prefix)
}

/// Deletes all resources in a range of names, portion by portion, and returns how many.
pub(crate) async fn delete_all(
    database: &mut dyn Maintenance,
    names: &Range<String>,
) -> Result<u64, sqlx::Error> {
    let mut all = 0;
    loop {
        let deleted = database.delete(names, PORTION).await?;
        all += deleted;
        if deleted == 0 {
            return Ok(all);
        }
    }
}

/// The columns beside the fence that no server can read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreadable {
    /// Those of the fence that the value was written with.
    pub(crate) value_fence: bool,
    /// The answers to the last numbered writes.
    pub(crate) answers: bool,
}

/// How many resources there are, and the first and the last of their names.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) count: i64,
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
}

from_row!(Counted { count, first, last });

/// A row as it is stored. Holders are bytes, because a repair by hand may have left no text.
#[derive(Debug)]
pub(crate) struct StoredRow {
    pub(crate) token: Option<i64>,
    pub(crate) holder: Vec<u8>,
    pub(crate) version: i64,
    /// The value's size in bytes; `None` if there is no value.
    pub(crate) size: Option<i64>,
    pub(super) value_token: Option<i64>,
    pub(super) value_holder: Option<Vec<u8>>,
    pub(super) answers: Option<String>,
}

from_row!(StoredRow { token, holder, version, size, value_token, value_holder, answers });

impl StoredRow {
    /// The fence. The error says why it is malformed.
    pub(crate) fn fence(&self) -> Result<Option<Fence>, String> {
        decode(self.token, &self.holder)
    }

    /// The fence that the value was written with. The error says why it is malformed.
    pub(crate) fn value_fence(&self) -> Result<Option<Fence>, String> {
        decode(self.value_token, self.value_holder.as_deref().unwrap_or_default())
    }

    /// The answers to the last numbered writes. The error says why they are malformed.
    pub(crate) fn answers(&self) -> Result<Answers, InvalidAnswers> {
        answers_from_column(self.answers.as_deref())
    }

    /// The columns beside the fence that no server can read.
    pub(crate) fn unreadable(&self) -> Unreadable {
        Unreadable { value_fence: self.value_fence().is_err(), answers: self.answers().is_err() }
    }
}

fn decode(token: Option<i64>, holder: &[u8]) -> Result<Option<Fence>, String> {
    let holder = String::from_utf8(holder.to_owned()).map_err(|error| error.to_string())?;
    fence_from_columns(token, Some(holder))
}
