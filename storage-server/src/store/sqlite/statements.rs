//! The statements of the SQLite store.
//!
//! SQLite has no arrays, so rows travel as JSON. `jsonb_each` is twice as fast here as `json_each`,
//! which turns each row back into text. It needs SQLite 3.51, which is compiled into the server.

use std::ops::Range;

use fence::Token;
use serde::{Serialize, Serializer, ser::SerializeTuple};
use sqlx::{AssertSqlSafe, Connection, Row as _, SqliteConnection, sqlite::SqliteRow};

use crate::{
    operation::Value,
    row::{Row, StoredValue},
    store::{
        Change, Wanted,
        columns::{
            ChangedRow, decode_listed, decode_rows, made_in_groups, under_common_fence,
            version_column,
        },
        error::UnreadableRow,
        list::{Listed, Page, ReadablePage},
    },
};

/// The largest value that is in its row, in bytes. A claim writes the row, and so this value, too. A larger one
/// is in a table of its own.
const INLINE_BYTES: usize = 4096;

/// A changed row, and the place of its value in the blob. It is serialized as an array: SQLite would
/// parse the names of columns once for each row.
struct PlacedRow<'a> {
    row: ChangedRow<'a>,
    /// The value's first byte, counted from 1.
    start: usize,
    /// `None` if there is no value, or a large one.
    length: Option<usize>,
    /// The length of a large value.
    large_bytes: Option<usize>,
    /// Its group, and whether its row is only compared.
    group: Option<(usize, bool)>,
}

impl Serialize for PlacedRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { row, start, length, large_bytes, group } = self;
        let mut columns = serializer.serialize_tuple(if group.is_some() { 19 } else { 17 })?;
        columns.serialize_element(row.resource)?;
        columns.serialize_element(&row.expected_token)?;
        columns.serialize_element(row.expected_holder)?;
        columns.serialize_element(&row.expected_version)?;
        columns.serialize_element(&row.expected_value)?;
        columns.serialize_element(&row.token)?;
        columns.serialize_element(row.holder)?;
        columns.serialize_element(&row.version)?;
        columns.serialize_element(&row.keeps_value)?;
        columns.serialize_element(&row.content_type)?;
        columns.serialize_element(start)?;
        columns.serialize_element(length)?;
        columns.serialize_element(&row.value_token)?;
        columns.serialize_element(&row.value_holder)?;
        columns.serialize_element(&row.expected_answers)?;
        columns.serialize_element(&row.answers)?;
        columns.serialize_element(large_bytes)?;
        // Most changes have no group, and then two columns less to parse.
        if let Some((group, is_check)) = group {
            columns.serialize_element(group)?;
            columns.serialize_element(is_check)?;
        }
        columns.end()
    }
}

/// Loads rows, in any order. One statement reads all of them and their large values as of one moment.
///
/// SQLite would sort the rows with their values: in memory, or in a file. A content type that is not ASCII is
/// left out, because it need not even be text: only the value is unreadable then.
const LOAD: &str = r#"
    with wanted as materialized (
        select key as ordinal, value ->> 0 as resource, value ->> 1 as most_bytes
        from jsonb_each(?)
    )
    select w.ordinal, r.token, r.holder, r.version,
        iif(r.content_type glob '*[^ -~]*', null, r.content_type) as content_type,
        coalesce(length(r.bytes), r.large_bytes) as size,
        coalesce(iif(length(r.bytes) <= w.most_bytes, r.bytes, null), v.bytes) as bytes,
        r.value_token, r.value_holder, r.answers,
        (select token from storage_common_fence where id = 1) as common_fence
    from wanted w
    left join storage_resource r on r.resource = w.resource
    left join storage_large_value v on r.large_bytes <= w.most_bytes
        and v.resource = r.resource and v.version = r.version
    "#;

/// Loads rows, all as of one moment.
pub(super) async fn load_rows(
    connection: &mut SqliteConnection,
    wanted: &[Wanted<'_>],
) -> Result<Vec<Result<Row, UnreadableRow>>, sqlx::Error> {
    let wanted_rows: Vec<_> =
        wanted.iter().map(|wanted| (wanted.resource.as_str(), wanted.value.most_bytes())).collect();
    let rows = sqlx::query(LOAD).bind(to_json(&wanted_rows)).fetch_all(connection).await?;
    let with_ordinals = rows.into_iter().map(|row| Ok((row.try_get("ordinal")?, row)));
    let mut with_ordinals =
        with_ordinals.collect::<Result<Vec<(i64, SqliteRow)>, sqlx::Error>>()?;
    with_ordinals.sort_by_key(|(ordinal, _)| *ordinal);
    let rows: Vec<_> = with_ordinals.into_iter().map(|(_, row)| row).collect();
    Ok(decode_rows(wanted, &rows))
}

/// Changes rows that exist, and returns the names of those that were as expected.
const UPDATE: &str = r#"
    update storage_resource as r
    set token = c.value ->> 5, holder = c.value ->> 6, version = c.value ->> 7,
        content_type = iif(c.value ->> 8, r.content_type, c.value ->> 9),
        bytes = iif(c.value ->> 8, r.bytes,
            iif(c.value ->> 11 = 0, x'', substr(?2, c.value ->> 10, c.value ->> 11))),
        value_token = iif(c.value ->> 8, r.value_token, c.value ->> 12),
        value_holder = iif(c.value ->> 8, r.value_holder, c.value ->> 13),
        answers = c.value ->> 15,
        large_bytes = iif(c.value ->> 8, r.large_bytes, c.value ->> 16)
    from jsonb_each(?1) c
    where r.resource = c.value ->> 0 and r.token is c.value ->> 1
        and r.holder = c.value ->> 2 and r.version = c.value ->> 3
        and (coalesce(length(r.bytes), r.large_bytes) is not null) = c.value ->> 4 and r.answers is c.value ->> 14
        and (select token from storage_common_fence where id = 1) is ?3
    returning resource
    "#;

/// Whether the row of a change is as expected, or there is none as expected.
macro_rules! is_as_expected {
    () => {
        r#"(
            r.token is c.expected_token and coalesce(r.holder, '') = c.expected_holder
            and coalesce(r.version, 0) = c.expected_version
            and (coalesce(length(r.bytes), r.large_bytes) is not null) = c.expected_value
            and r.answers is c.expected_answers
        )"#
    };
}

/// Does the same, inserts new rows, and leaves out whole groups. SQLite has one writer at a time, so what is
/// compared can't change before the commit.
const UPDATE_OR_INSERT: &str = concat!(
    r#"
    with change as materialized (
        select value ->> 0 as resource,
            value ->> 1 as expected_token,
            value ->> 2 as expected_holder,
            value ->> 3 as expected_version,
            value ->> 4 as expected_value,
            value ->> 5 as token,
            value ->> 6 as holder,
            value ->> 7 as version,
            value ->> 8 as keeps_value,
            value ->> 9 as content_type,
            value ->> 10 as start,
            value ->> 11 as length,
            value ->> 12 as value_token,
            value ->> 13 as value_holder,
            value ->> 14 as expected_answers,
            value ->> 15 as answers,
            value ->> 16 as large_bytes,
            value ->> 17 as grp,
            value ->> 18 as is_check
        from jsonb_each(?1)
    ), broken as materialized (
        select c.grp
        from change c
        left join storage_resource r on r.resource = c.resource
        where c.grp is not null and not
    "#,
    is_as_expected!(),
    r#"
    )
    insert into storage_resource (
        resource, token, holder, version, content_type, bytes, value_token, value_holder, answers,
        large_bytes
    )
    select c.resource, c.token, c.holder, c.version,
        iif(c.keeps_value, r.content_type, c.content_type),
        iif(c.keeps_value, r.bytes, iif(c.length = 0, x'', substr(?2, c.start, c.length))),
        iif(c.keeps_value, r.value_token, c.value_token),
        iif(c.keeps_value, r.value_holder, c.value_holder),
        c.answers,
        iif(c.keeps_value, r.large_bytes, c.large_bytes)
    from change c
    left join storage_resource r on r.resource = c.resource
    where c.is_check is not true and (c.grp is null or c.grp not in (select grp from broken))
        and (select token from storage_common_fence where id = 1) is ?3
        and
    "#,
    is_as_expected!(),
    r#"
    on conflict (resource) do update set token = excluded.token, holder = excluded.holder,
        version = excluded.version, content_type = excluded.content_type,
        bytes = excluded.bytes, value_token = excluded.value_token,
        value_holder = excluded.value_holder, answers = excluded.answers,
        large_bytes = excluded.large_bytes
    returning resource
    "#
);

/// Whether the change writes a value that is too large for its row.
pub(super) fn writes_large_value(change: &Change<'_>) -> bool {
    large_value(change).is_some()
}

fn large_value<'a>(change: &Change<'a>) -> Option<&'a [u8]> {
    match &change.after.value {
        StoredValue::Present(Value { content, .. })
            if change.before.version != change.after.version =>
        {
            Some(&*content.bytes).filter(|bytes| bytes.len() > INLINE_BYTES)
        }
        _ => None,
    }
}

/// Applies changes in one statement, which compares each row with its loaded state: another process
/// may have written to the file meanwhile. Most batches have no new row, and the statement without
/// an insert is faster. Each large value takes a statement of its own, so such a batch needs a transaction.
///
/// All small values travel in one blob, out of which each is cut, so that they need no encoding as JSON.
/// An empty value is not cut, because `substr` of an empty blob is null.
pub(super) async fn apply_changes(
    connection: &mut SqliteConnection,
    changes: &[Change<'_>],
) -> Result<Vec<bool>, sqlx::Error> {
    let (common_fence, current) = under_common_fence(changes);
    let mut blob = Vec::new();
    let rows: Vec<_> = current
        .into_iter()
        .map(|change| {
            let row = ChangedRow::from(change);
            let large_bytes = large_value(change).map(<[u8]>::len);
            let bytes = row.bytes.filter(|_| large_bytes.is_none());
            let (start, length) = (blob.len() + 1, bytes.map(<[u8]>::len));
            blob.extend_from_slice(bytes.unwrap_or_default());
            let group = change.group.map(|group| (group, change.is_check()));
            PlacedRow { row, start, length, large_bytes, group }
        })
        .collect();
    let is_plain = |placed: &PlacedRow<'_>| !placed.row.is_new() && placed.group.is_none();
    let statement = if rows.iter().all(is_plain) { UPDATE } else { UPDATE_OR_INSERT };
    // All rows are fetched, not only the first: the statement commits after its last row.
    let applied: Vec<String> = sqlx::query_scalar(statement)
        .bind(to_json(&rows))
        .bind(blob)
        .bind(common_fence.map(Token::as_i64))
        .fetch_all(&mut *connection)
        .await?;
    let applied = made_in_groups(changes, applied)?;
    for (change, _) in changes.iter().zip(&applied).filter(|(_, applied)| **applied) {
        if let Some(bytes) = large_value(change) {
            insert_large_value(connection, change, bytes).await?;
        }
    }
    Ok(applied)
}

async fn insert_large_value(
    connection: &mut SqliteConnection,
    Change { resource, after, .. }: &Change<'_>,
    bytes: &[u8],
) -> Result<(), sqlx::Error> {
    let insert = r#"
        insert into storage_large_value (resource, version, bytes)
        values (?1, ?2, ?3)
        on conflict (resource, version) do update set bytes = excluded.bytes
        "#;
    sqlx::query(insert)
        .bind(resource.as_str())
        .bind(version_column(after.version))
        .bind(bytes)
        .execute(connection)
        .await
        .map(drop)
}

/// Sets a number in the file's header to its present value, so that a real commit is tested. SQLite writes the
/// page and syncs the log though the number stays the same. It would do neither for an `update` to the same
/// values.
///
/// Applications keep the version of their schema in this number. In one transaction, none of them
/// can change it in between.
pub(super) async fn probe(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("begin immediate").await?;
    let version: i64 =
        sqlx::query_scalar("pragma user_version").fetch_one(&mut *transaction).await?;
    let same = format!("pragma user_version = {version}");
    sqlx::query(AssertSqlSafe(same)).execute(&mut *transaction).await?;
    transaction.commit().await
}

/// Lists resources that have a value, in the byte order of their names.
pub(super) async fn list_rows(
    connection: &mut SqliteConnection,
    page: &Page,
) -> Result<Vec<Listed>, sqlx::Error> {
    let Range { start, end } = page.range();
    let select = r#"
        select resource, value_token, version, coalesce(length(bytes), large_bytes) as size
        from storage_resource
        where (bytes is not null or large_bytes is not null)
            and resource >= ?1 and resource < ?2
        order by resource
        limit ?3
        "#;
    let mut readable = ReadablePage::new(page);
    loop {
        let rows = sqlx::query(select).bind(&start).bind(&end).bind(readable.limit);
        let rows = rows.fetch_all(&mut *connection).await?;
        if let Some(listed) = readable.take(decode_listed(&rows)) {
            return Ok(listed);
        }
    }
}

fn to_json(rows: &impl Serialize) -> String {
    serde_json::to_string(rows).expect("names, numbers and text are JSON")
}

#[cfg(test)]
mod tests {
    use crate::store::sqlite::migrator;

    use super::*;

    async fn plan(connection: &mut SqliteConnection, statement: &str) -> String {
        let explain = AssertSqlSafe(format!("explain query plan {statement}"));
        let steps = sqlx::query(explain).bind("[]").fetch_all(connection).await.unwrap();
        steps.iter().map(|step| step.get::<String, _>("detail") + "\n").collect()
    }

    #[tokio::test]
    async fn load_sorts_no_values() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        migrator().run(&mut connection).await.unwrap();
        let sorts = "USE TEMP B-TREE";
        let planned = plan(&mut connection, LOAD).await;
        assert!(!planned.contains(sorts) && planned.contains("SEARCH r USING"), "{planned}");
        // The control.
        let planned = plan(&mut connection, &format!("{LOAD} order by w.ordinal")).await;
        assert!(planned.contains(sorts), "{planned}");
    }
}
