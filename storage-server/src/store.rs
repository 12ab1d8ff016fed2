//! Where resources are kept.
//!
//! A store knows nothing of the fencing rule. It hands out rows and takes them back changed, on one
//! condition: that they still are as they were handed out. So the rule stands once, in Rust, nothing
//! that a server remembers decides anything, and any number of servers may share one database.

mod kept;
pub mod postgres;
pub mod sqlite;

use std::sync::Arc;

use anyhow::{Context, bail};
use async_trait::async_trait;
use fence::{Fence, ResourceName, Token};
use sqlx::migrate::{Migrate, MigrateError, Migrator};

use crate::{
    operation::{Content, Value},
    row::{Row, StoredValue},
};

/// A database that keeps resources.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Loads what the resources are, in the order asked for, all as of one moment. A resource that
    /// nobody has heard of is `Row::default()`.
    ///
    /// What is loaded is durable.
    async fn load(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, Unreachable>;

    /// Makes the changes durable, all in one transaction, and tells of each whether it was made. A
    /// change is left out if its resource is no longer what it was when it was loaded: it may be
    /// tried again from [`load`](Self::load).
    ///
    /// The changes are of distinct resources, in the byte order of their names.
    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError>;

    /// Changes one resource as decided by what it is. Where [`apply`](Self::apply) leaves a change out
    /// whenever a rival is faster, this keeps rivals away from loading until the change is durable.
    async fn apply_under_lock(
        &self,
        wanted: Wanted<'_>,
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError>;

    /// Tells of each resource whether somebody else has its row locked at this moment.
    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable>;

    /// Lists resources that have a value, in the byte order of their names.
    async fn list(&self, page: &Page) -> Result<Vec<Listed>, Unreachable>;

    /// Asks the database for an answer.
    async fn ping(&self) -> Result<(), Unreachable>;

    /// Leaves the database in good order, when all work is done.
    async fn close(&self);
}

/// Opens the store that a database URL names, and applies its migrations.
///
/// # Errors
/// If the database can't be used, or its schema is newer than this server knows.
pub async fn open(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => Ok(Arc::new(sqlite::SqliteStore::open(url).await?)),
        Some("postgres" | "postgresql") => Ok(Arc::new(postgres::PostgresStore::open(url).await?)),
        _ => bail!("the database URL begins neither with sqlite: nor with postgres:"),
    }
}

async fn migrate<'a, A>(migrator: &Migrator, database: A) -> anyhow::Result<()>
where
    A: sqlx::Acquire<'a>,
    <A::Connection as std::ops::Deref>::Target: Migrate,
{
    match migrator.run(database).await {
        Err(MigrateError::VersionMissing(version)) => bail!(
            "the database's schema is newer than this server knows (migration {version}): \
             a newer storage-server is needed"
        ),
        result => result.context("can't bring the database's schema up to date"),
    }
}

/// Makes of what a resource is what it shall be.
pub type Decide<'a> = Box<dyn FnOnce(&Row) -> Row + Send + 'a>;

/// A resource to load.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The resource.
    pub resource: &'a ResourceName,
    /// Whether its value is wanted too, or only whether there is one.
    pub value: WantedValue,
}

/// How much of a value to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedValue {
    /// The value.
    Whole,
    /// Whether there is one.
    Presence,
}

/// A resource to change.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The resource.
    pub resource: &'a ResourceName,
    /// What it was when it was loaded.
    pub before: &'a Row,
    /// What it shall be.
    pub after: &'a Row,
}

/// A change as the databases take it: the columns of the new row, and what identifies the state of
/// the old one. Token and version do that together: each change raises at least one of them, and
/// neither ever falls.
#[derive(Debug)]
struct SqlChange<'a> {
    resource: &'a str,
    expected_token: Option<i64>,
    expected_version: i64,
    token: Option<i64>,
    holder: &'a str,
    version: i64,
    /// The value stays as it is, whatever the columns below say.
    keeps_value: bool,
    content_type: Option<&'a str>,
    bytes: Option<&'a [u8]>,
    value_token: Option<i64>,
    value_holder: Option<&'a str>,
}

impl<'a> From<&Change<'a>> for SqlChange<'a> {
    fn from(change: &Change<'a>) -> Self {
        let Change { resource, before, after } = change;
        let (token, holder) = sql_fence(after.fence.as_ref());
        let value = match &after.value {
            StoredValue::Present(value) => Some(value),
            StoredValue::Absent | StoredValue::NotLoaded => None,
        };
        let written_with = value.map(|value| sql_fence(value.written_with.as_ref()));
        Self {
            resource: resource.as_str(),
            expected_token: before.fence.as_ref().map(|fence| fence.token.as_i64()),
            expected_version: sql_version(before.version),
            token,
            holder,
            version: sql_version(after.version),
            keeps_value: before.version == after.version,
            content_type: value.map(|value| value.content.content_type.as_str()),
            bytes: value.map(|value| &*value.content.bytes),
            value_token: written_with.and_then(|(token, _)| token),
            value_holder: written_with.map(|(_, holder)| holder),
        }
    }
}

/// Which resources to list.
#[derive(Clone, Debug)]
pub struct Page {
    /// Only names that begin with this.
    pub prefix: String,
    /// Only names after this one.
    pub after: String,
    /// At most so many.
    pub limit: u32,
}

impl Page {
    /// The lowest text above every name that begins with the prefix; `None` if there is no such
    /// text.
    pub(crate) fn prefix_end(&self) -> Option<String> {
        let mut chars: Vec<char> = self.prefix.chars().collect();
        while let Some(last) = chars.pop() {
            if let Some(next) = (last..=char::MAX).nth(1) {
                chars.push(next);
                return Some(chars.into_iter().collect());
            }
        }
        None
    }
}

/// A resource in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The resource's name.
    pub resource: ResourceName,
    /// The token that the value was written with.
    pub token: Option<Token>,
    /// The resource's version.
    pub version: u64,
    /// The value's size in bytes.
    pub size: u64,
}

/// The database gave no answer; whatever was asked has changed nothing.
#[derive(Debug, thiserror::Error)]
#[error("the database can't be reached: {0}")]
pub struct Unreachable(#[from] pub(crate) sqlx::Error);

/// Why changes were not all made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Somebody else's lock stood in the way for too long. Nothing was changed; a part of the
    /// changes may go through.
    #[error("a lock of somebody else's is in the way")]
    Blocked,
    /// Nothing was changed.
    #[error("nothing was changed: {0}")]
    Unchanged(#[source] sqlx::Error),
    /// The connection was lost before the answer: the changes may have been made.
    #[error("the connection was lost before the database answered: {0}")]
    Unknown(#[source] sqlx::Error),
}

fn sql_version(version: u64) -> i64 {
    i64::try_from(version).expect("a version counts writes, of which there aren't 2^63")
}

fn sql_fence(fence: Option<&Fence>) -> (Option<i64>, &str) {
    match fence {
        Some(fence) => (Some(fence.token.as_i64()), fence.holder.as_str()),
        None => (None, ""),
    }
}

/// What [`Store::load`] selects of a resource, in this order.
type LoadedRow = (
    Option<i64>,
    Option<String>,
    Option<i64>,
    bool,
    Option<String>,
    Option<Vec<u8>>,
    Option<i64>,
    Option<String>,
);

fn row_from_sql(loaded: LoadedRow) -> Result<Row, sqlx::Error> {
    let (token, holder, version, has_value, content_type, bytes, value_token, value_holder) =
        loaded;
    let value = match (has_value, content_type, bytes) {
        (false, ..) => StoredValue::Absent,
        (true, Some(content_type), Some(bytes)) => StoredValue::Present(Value {
            content: Content { content_type, bytes: bytes.into() },
            written_with: fence_from_sql(value_token, value_holder)?,
        }),
        (true, ..) => StoredValue::NotLoaded,
    };
    Ok(Row {
        fence: fence_from_sql(token, holder)?,
        version: version.map_or(Ok(0), u64::try_from).map_err(corrupt)?,
        value,
    })
}

fn fence_from_sql(
    token: Option<i64>,
    holder: Option<String>,
) -> Result<Option<Fence>, sqlx::Error> {
    let Some(token) = token else {
        return Ok(None);
    };
    let token = Token::try_from(token).map_err(corrupt)?;
    let holder = holder.unwrap_or_default().try_into().map_err(corrupt)?;
    Ok(Some(Fence { token, holder }))
}

fn listed_from_sql(
    (resource, token, version, size): (String, Option<i64>, i64, i64),
) -> Result<Listed, sqlx::Error> {
    Ok(Listed {
        resource: resource.try_into().map_err(corrupt)?,
        token: token.map(Token::try_from).transpose().map_err(corrupt)?,
        version: version.try_into().map_err(corrupt)?,
        size: size.try_into().map_err(corrupt)?,
    })
}

/// What the database holds was not written by this server.
fn corrupt(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_first_text_after_all_that_have_the_prefix() {
        let end = |prefix: &str| {
            Page { prefix: prefix.to_owned(), after: String::new(), limit: 1 }.prefix_end()
        };
        assert_eq!(end(""), None);
        assert_eq!(end("orders/").as_deref(), Some("orders0"));
        assert_eq!(end("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end("\u{10ffff}"), None);
    }
}
