//! Rows as columns of the databases.

use fence::{Fence, Token};
use serde::Serialize;

use super::{Change, list::Listed};
use crate::{
    operation::{Content, Value},
    row::{Row, StoredValue},
};

/// The columns of a changed row, and those that identify its state before.
///
/// Token and version together identify that state: each change raises at least one of them, and
/// neither ever falls.
#[derive(Debug, Serialize)]
pub(super) struct ChangedRow<'a> {
    pub(super) resource: &'a str,
    pub(super) expected_token: Option<i64>,
    pub(super) expected_version: i64,
    pub(super) token: Option<i64>,
    pub(super) holder: &'a str,
    pub(super) version: i64,
    /// The value stays as it is, and the columns below are not used.
    pub(super) keeps_value: bool,
    pub(super) content_type: Option<&'a str>,
    #[serde(skip)]
    pub(super) bytes: Option<&'a [u8]>,
    pub(super) value_token: Option<i64>,
    pub(super) value_holder: Option<&'a str>,
}

impl<'a> From<&Change<'a>> for ChangedRow<'a> {
    fn from(change: &Change<'a>) -> Self {
        let Change { resource, before, after } = change;
        let (token, holder) = fence_columns(after.fence.as_ref());
        let value = match &after.value {
            StoredValue::Present(value) => Some(value),
            StoredValue::Absent | StoredValue::NotLoaded => None,
        };
        let written_with = value.map(|value| fence_columns(value.written_with.as_ref()));
        Self {
            resource: resource.as_str(),
            expected_token: before.fence.as_ref().map(|fence| fence.token.as_i64()),
            expected_version: version_column(before.version),
            token,
            holder,
            version: version_column(after.version),
            keeps_value: before.version == after.version,
            content_type: value.map(|value| value.content.content_type.as_str()),
            bytes: value.map(|value| &*value.content.bytes),
            value_token: written_with.and_then(|(token, _)| token),
            value_holder: written_with.map(|(_, holder)| holder),
        }
    }
}

/// The columns of a loaded row. All are null for a resource that was never used.
#[derive(sqlx::FromRow)]
pub(super) struct LoadedRow {
    token: Option<i64>,
    holder: Option<String>,
    version: Option<i64>,
    has_value: bool,
    /// Null if only the value's presence is wanted, like `bytes`.
    content_type: Option<String>,
    bytes: Option<Vec<u8>>,
    value_token: Option<i64>,
    value_holder: Option<String>,
}

impl TryFrom<LoadedRow> for Row {
    type Error = sqlx::Error;

    fn try_from(loaded: LoadedRow) -> Result<Self, sqlx::Error> {
        let value = match (loaded.has_value, loaded.content_type, loaded.bytes) {
            (false, ..) => StoredValue::Absent,
            (true, Some(content_type), Some(bytes)) => StoredValue::Present(Value {
                content: Content { content_type, bytes: bytes.into() },
                written_with: fence_from_columns(loaded.value_token, loaded.value_holder)?,
            }),
            (true, ..) => StoredValue::NotLoaded,
        };
        Ok(Self {
            fence: fence_from_columns(loaded.token, loaded.holder)?,
            version: loaded.version.map_or(Ok(0), u64::try_from).map_err(corrupt)?,
            value,
        })
    }
}

/// The columns of a row in a list.
#[derive(sqlx::FromRow)]
pub(super) struct ListedRow {
    resource: String,
    value_token: Option<i64>,
    version: i64,
    size: i64,
}

impl TryFrom<ListedRow> for Listed {
    type Error = sqlx::Error;

    fn try_from(row: ListedRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            resource: row.resource.try_into().map_err(corrupt)?,
            token: row.value_token.map(Token::try_from).transpose().map_err(corrupt)?,
            version: row.version.try_into().map_err(corrupt)?,
            size: row.size.try_into().map_err(corrupt)?,
        })
    }
}

fn version_column(version: u64) -> i64 {
    i64::try_from(version).expect("a version counts writes, and there are fewer than 2^63")
}

fn fence_columns(fence: Option<&Fence>) -> (Option<i64>, &str) {
    match fence {
        Some(fence) => (Some(fence.token.as_i64()), fence.holder.as_str()),
        None => (None, ""),
    }
}

fn fence_from_columns(
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

/// The error of a row that this server can't have written.
fn corrupt(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}
