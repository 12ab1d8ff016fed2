//! Rows as columns of the databases.
//!
//! A row that no server can have written is unreadable. It fails alone, and stops neither the batch nor
//! the server.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
};

use fence::{Fence, Holder, InvalidHolder, InvalidName, Token};
use sqlx::FromRow;

use super::{Change, Wanted, WantedValue, error::UnreadableRow, from_row::from_row, list::Listed};
use crate::{
    operation::{Content, Value},
    row::{Described, Row, StoredValue},
    sequence::{Answers, InvalidAnswers},
};

/// The columns of a changed row, and those that identify its state before.
///
/// Each change raises the token or the version, or adds an answer. So these identify that state,
/// unless changes were lost by a failover or a restored backup. Then the same token may have come with
/// another holder, and the same version with or without a value. The common fence belongs to it, too:
/// it may have been raised since the row was loaded. No decision depends on anything else.
#[derive(Debug)]
pub(super) struct ChangedRow<'a> {
    pub(super) resource: &'a str,
    pub(super) expected_token: Option<i64>,
    pub(super) expected_holder: &'a str,
    pub(super) expected_version: i64,
    pub(super) expected_value: bool,
    pub(super) expected_answers: Option<String>,
    pub(super) token: Option<i64>,
    pub(super) holder: &'a str,
    pub(super) version: i64,
    /// The value stays as it is, and the columns below are not used.
    pub(super) keeps_value: bool,
    pub(super) content_type: Option<&'a str>,
    pub(super) bytes: Option<&'a [u8]>,
    pub(super) value_token: Option<i64>,
    pub(super) value_holder: Option<&'a str>,
    pub(super) answers: Option<String>,
}

impl<'a> From<&Change<'a>> for ChangedRow<'a> {
    fn from(change: &Change<'a>) -> Self {
        let Change { resource, before, after, .. } = change;
        let (expected_token, expected_holder) = fence_columns(before.fence.as_ref());
        let (token, holder) = fence_columns(after.fence.as_ref());
        let keeps_value = before.version == after.version;
        let value = match &after.value {
            StoredValue::Present(value) if !keeps_value => Some(value),
            StoredValue::Present(_)
            | StoredValue::Absent
            | StoredValue::Unknown
            | StoredValue::NotLoaded(_) => None,
        };
        let written_with = value.map(|value| fence_columns(value.written_with.as_ref()));
        Self {
            resource: resource.as_str(),
            expected_token,
            expected_holder,
            expected_version: version_column(before.version),
            expected_value: before.value != StoredValue::Absent,
            expected_answers: answers_column(&before.answers),
            token,
            holder,
            version: version_column(after.version),
            keeps_value,
            content_type: value.map(|value| value.content.content_type.as_str()),
            bytes: value.map(|value| &*value.content.bytes),
            value_token: written_with.and_then(|(token, _)| token),
            value_holder: written_with.map(|(_, holder)| holder),
            answers: answers_column(&after.answers),
        }
    }
}

impl ChangedRow<'_> {
    /// Whether the database has no row of the resource yet, as far as is known.
    pub(super) fn is_new(&self) -> bool {
        self.expected_version == 0 && self.expected_token.is_none()
    }
}

/// The common fence under which a batch is applied, and its changes. One batch has one, so that no row has to
/// carry it. A change that was decided under a lower one is left out, with its group.
pub(super) fn under_common_fence<'a, 'b>(
    changes: &'b [Change<'a>],
) -> (Option<Token>, Vec<&'b Change<'a>>) {
    let highest = changes.iter().filter_map(|change| change.before.common_fence).max();
    let is_lower = |change: &&Change<'_>| change.before.common_fence != highest;
    let lower: HashSet<_> =
        changes.iter().filter(is_lower).filter_map(|change| change.group).collect();
    let is_left_out = |change: &Change<'_>| {
        is_lower(&change) || change.group.is_some_and(|group| lower.contains(&group))
    };
    (highest, changes.iter().filter(|change| !is_left_out(change)).collect())
}

/// Whether each change was made, after a statement that returned the resources that it has changed.
///
/// # Errors
/// If a group was made in part. No statement does that.
pub(super) fn made_in_groups(
    changes: &[Change<'_>],
    changed: Vec<String>,
) -> Result<Vec<bool>, sqlx::Error> {
    let changed: HashSet<_> = changed.into_iter().collect();
    let is_changed = |change: &Change<'_>| changed.contains(change.resource.as_str());
    let mut groups = HashMap::new();
    for change in changes.iter().filter(|change| change.group.is_some() && !change.is_check()) {
        if *groups.entry(change.group).or_insert(is_changed(change)) != is_changed(change) {
            return Err(sqlx::Error::Protocol("a group of changes was made in part".to_owned()));
        }
    }
    let is_made =
        |change: &Change<'_>| groups.get(&change.group).copied().unwrap_or(is_changed(change));
    Ok(changes.iter().map(is_made).collect())
}

/// The columns of a loaded row. All but the common fence are null for a resource that was never used.
pub(super) struct LoadedRow {
    token: Option<i64>,
    holder: Option<String>,
    version: Option<i64>,
    common_fence: Option<i64>,
    /// The value's size; null if there is no value.
    size: Option<i64>,
    content_type: Option<String>,
    /// Null if the value is not loaded.
    bytes: Option<Vec<u8>>,
    value_token: Option<i64>,
    value_holder: Option<String>,
    answers: Option<String>,
}

from_row!(LoadedRow {
    token,
    holder,
    version,
    common_fence,
    size,
    content_type,
    bytes,
    value_token,
    value_holder,
    answers,
});

/// A write replaces the value without reading it.
pub(crate) const BAD_CONTENT_TYPE: &str =
    "the content type of its value is missing or malformed: write the value again";

/// Decodes loaded rows, each by itself: an unreadable one must not fail the others.
pub(super) fn decode_rows<R>(wanted: &[Wanted<'_>], loaded: &[R]) -> Vec<Result<Row, UnreadableRow>>
where
    LoadedRow: for<'r> FromRow<'r, R>,
    R: sqlx::Row,
{
    let rows = wanted.iter().zip(loaded);
    rows.map(|(wanted, loaded)| {
        let row = LoadedRow::from_row(loaded).map_err(with_fence_repair);
        row.and_then(|row| row.decode(wanted.value))
            .map_err(|reason| UnreadableRow::new(wanted.resource.as_str(), reason))
    })
    .collect()
}

/// Such as after `delete from storage_large_value`. A write puts another value in its place.
const NO_BYTES: &str = "its value is missing: write the value again";

impl LoadedRow {
    fn decode(self, wanted: WantedValue) -> Result<Row, String> {
        // The fence of the value is decoded even if the value was not loaded. The database would
        // not take back a row in which it is malformed, and would reject the whole batch.
        let written_with =
            fence_from_columns(self.value_token, self.value_holder).map_err(|reason| {
                with_fence_repair(format!("the fence of its value is malformed: {reason}"))
            })?;
        let content_type = self.content_type.filter(|text| Content::allows_type(text.as_bytes()));
        let value = match (self.size, self.bytes, content_type) {
            (None, ..) => StoredValue::Absent,
            (Some(size), None, _) if Some(size) <= wanted.most_bytes() => {
                return Err(NO_BYTES.to_owned());
            }
            (Some(size), None, content_type) => {
                let size = size.try_into().map_err(|_| "its size is negative".to_owned())?;
                StoredValue::NotLoaded(Described { content_type, size, written_with })
            }
            (Some(_), Some(bytes), Some(content_type)) => {
                let content = Content { content_type, bytes: bytes.into() };
                StoredValue::Present(Value { content, written_with })
            }
            (Some(_), Some(_), None) => return Err(BAD_CONTENT_TYPE.to_owned()),
        };
        Ok(Row {
            fence: fence_from_columns(self.token, self.holder)
                .map_err(|reason| with_fence_repair(format!("its fence is malformed: {reason}")))?,
            common_fence: self
                .common_fence
                .map(Token::try_from)
                .transpose()
                .map_err(|error| error.to_string())?,
            version: self.version.map_or(Ok(0), version_from_column)?,
            value,
            answers: answers_from_column(self.answers.as_deref()).map_err(|error| {
                with_fence_repair(format!("its answers are malformed: {error}"))
            })?,
        })
    }
}

/// The columns of a row in a list.
pub(super) struct ListedRow {
    resource: String,
    value_token: Option<i64>,
    version: i64,
    size: i64,
}

from_row!(ListedRow { resource, value_token, version, size });

/// Decodes the rows of a list, each by itself.
pub(super) fn decode_listed<R>(rows: &[R]) -> Vec<Result<Listed, UnreadableRow>>
where
    ListedRow: for<'r> FromRow<'r, R>,
    R: sqlx::Row,
{
    let decode = |row| {
        let row = ListedRow::from_row(row).map_err(|error| UnreadableRow::new("?", error))?;
        let name = row.resource.clone();
        Listed::try_from(row).map_err(|reason| UnreadableRow::new(name, reason))
    };
    rows.iter().map(decode).collect()
}

impl TryFrom<ListedRow> for Listed {
    type Error = String;

    fn try_from(row: ListedRow) -> Result<Self, String> {
        let token = row.value_token.map(Token::try_from).transpose();
        Ok(Self {
            resource: row.resource.try_into().map_err(|error: InvalidName| error.to_string())?,
            token: token.map_err(|error| error.to_string())?,
            version: version_from_column(row.version)?,
            size: row.size.try_into().map_err(|_| "its size is negative".to_owned())?,
        })
    }
}

/// Adds how an operator repairs a fence.
fn with_fence_repair(reason: impl Display) -> String {
    format!("{reason}: repair it with `storage-server fence set`")
}

pub(super) fn version_column(version: u64) -> i64 {
    i64::try_from(version).expect("it counts writes from a readable version, which is below 2^62")
}

/// Decodes a version, which must leave numbers for all later writes.
fn version_from_column(version: i64) -> Result<u64, String> {
    let readable = u64::try_from(version).ok().filter(|version| *version < 1 << 62);
    readable.ok_or_else(|| {
        format!("its version is {version}: set its version in the database, below 2^62")
    })
}

fn answers_column(answers: &Answers) -> Option<String> {
    (!answers.is_empty()).then(|| answers.to_string())
}

pub(super) fn answers_from_column(answers: Option<&str>) -> Result<Answers, InvalidAnswers> {
    answers.map_or_else(|| Ok(Answers::default()), str::parse)
}

fn fence_columns(fence: Option<&Fence>) -> (Option<i64>, &str) {
    match fence {
        Some(fence) => (Some(fence.token.as_i64()), fence.holder.as_str()),
        None => (None, ""),
    }
}

/// Decodes a fence. The error says what is wrong with it.
pub(super) fn fence_from_columns(
    token: Option<i64>,
    holder: Option<String>,
) -> Result<Option<Fence>, String> {
    let holder: Holder =
        holder.unwrap_or_default().try_into().map_err(|error: InvalidHolder| error.to_string())?;
    match token.map(Token::try_from).transpose() {
        Ok(Some(token)) => Ok(Some(Fence { token, holder })),
        Ok(None) if holder.is_empty() => Ok(None),
        Ok(None) => Err("it has a holder and no token".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fence::ResourceName;

    fn row(common_fence: u64, version: u64) -> Row {
        Row { common_fence: Token::new(common_fence).ok(), version, ..Row::default() }
    }

    #[test]
    fn change_under_a_lower_common_fence_is_left_out_with_its_group() {
        let resource: ResourceName = "r".parse().unwrap();
        let (low, high, after) = (row(1, 1), row(2, 1), row(2, 2));
        let changes =
            [(&high, Some(0)), (&low, Some(0)), (&high, Some(1)), (&low, None), (&high, None)].map(
                |(before, group)| Change { resource: &resource, before, after: &after, group },
            );
        let (common_fence, current) = under_common_fence(&changes);
        let groups: Vec<_> = current.iter().map(|change| change.group).collect();
        assert_eq!((common_fence, groups), (Token::new(2).ok(), vec![Some(1), None]));
    }

    #[test]
    fn group_that_was_made_in_part_is_an_error() {
        let [a, b, c, d]: [ResourceName; 4] =
            ["a", "b", "c", "d"].map(|name| name.parse().unwrap());
        let (before, after) = (row(1, 1), row(1, 2));
        let change = |resource, after, group| Change { resource, before: &before, after, group };
        let changes = [
            change(&a, &after, Some(0)),
            change(&b, &before, Some(0)),
            change(&c, &after, Some(0)),
            change(&d, &after, None),
        ];
        let made = |changed: &[&str]| {
            made_in_groups(&changes, changed.iter().map(|name| (*name).to_owned()).collect()).ok()
        };
        assert_eq!(made(&["a", "c"]), Some(vec![true, true, true, false]));
        assert_eq!(made(&["d"]), Some(vec![false, false, false, true]));
        assert_eq!(made(&["a", "d"]), None);
    }
}
