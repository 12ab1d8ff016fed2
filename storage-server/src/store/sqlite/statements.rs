//! The statements of the SQLite store.
//!
//! SQLite has no arrays, so rows travel as JSON. `jsonb_each` is twice as fast here as `json_each`,
//! which turns each row back into text. It needs SQLite 3.51, which is compiled into the server.

use std::collections::HashSet;

use serde::Serialize;
use sqlx::{SqliteConnection, SqlitePool};

use crate::{
    row::Row,
    store::{
        Change, Wanted, WantedValue,
        columns::{ChangedRow, ListedRow, LoadedRow},
        list::{Listed, Page},
    },
};

#[derive(Serialize)]
struct WantedRow<'a> {
    resource: &'a str,
    whole: bool,
}

/// A changed row, and the place of its value in the blob.
#[derive(Serialize)]
struct PlacedRow<'a> {
    #[serde(flatten)]
    row: ChangedRow<'a>,
    /// The value's first byte, counted from 1.
    start: usize,
    /// Null if there is no value.
    length: Option<usize>,
}

/// Loads rows, all as of one moment.
pub(super) async fn load_rows(
    connection: &mut SqliteConnection,
    wanted: &[Wanted<'_>],
) -> Result<Vec<Row>, sqlx::Error> {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|wanted| WantedRow {
            resource: wanted.resource.as_str(),
            whole: wanted.value == WantedValue::Whole,
        })
        .collect();
    let rows: Vec<LoadedRow> = sqlx::query_as(
        r#"
        with wanted as materialized (
            select key as ordinal, value ->> 'resource' as resource, value ->> 'whole' as whole
            from jsonb_each(?)
        )
        select r.token, r.holder, r.version, r.bytes is not null as has_value,
            iif(w.whole, r.content_type, null) as content_type,
            iif(w.whole, r.bytes, null) as bytes,
            r.value_token, r.value_holder
        from wanted w
        left join storage_resource r on r.resource = w.resource
        order by w.ordinal
        "#,
    )
    .bind(to_json(&wanted))
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Row::try_from).collect()
}

/// Applies changes in one statement, which compares each row with its loaded state: another process
/// may have written to the file meanwhile.
///
/// All values travel in one blob, out of which each is cut, so that they need no encoding as JSON.
/// An empty value is not cut, because `substr` of an empty blob is null.
pub(super) async fn apply_changes(
    connection: &mut SqliteConnection,
    changes: &[Change<'_>],
) -> Result<Vec<bool>, sqlx::Error> {
    let mut blob = Vec::new();
    let rows: Vec<_> = changes
        .iter()
        .map(|change| {
            let row = ChangedRow::from(change);
            let (start, length) = (blob.len() + 1, row.bytes.map(<[u8]>::len));
            blob.extend_from_slice(row.bytes.unwrap_or_default());
            PlacedRow { row, start, length }
        })
        .collect();
    // All rows are fetched, not only the first: the statement commits after its last row.
    let applied: Vec<String> = sqlx::query_scalar(
        r#"
        with change as materialized (
            select value ->> 'resource' as resource,
                value ->> 'expected_token' as expected_token,
                value ->> 'expected_version' as expected_version,
                value ->> 'token' as token,
                value ->> 'holder' as holder,
                value ->> 'version' as version,
                value ->> 'keeps_value' as keeps_value,
                value ->> 'content_type' as content_type,
                value ->> 'start' as start,
                value ->> 'length' as length,
                value ->> 'value_token' as value_token,
                value ->> 'value_holder' as value_holder
            from jsonb_each(?1)
        )
        insert into storage_resource (
            resource, token, holder, version, content_type, bytes, value_token, value_holder
        )
        select c.resource, c.token, c.holder, c.version,
            iif(c.keeps_value, r.content_type, c.content_type),
            iif(c.keeps_value, r.bytes, iif(c.length = 0, x'', substr(?2, c.start, c.length))),
            iif(c.keeps_value, r.value_token, c.value_token),
            iif(c.keeps_value, r.value_holder, c.value_holder)
        from change c
        left join storage_resource r on r.resource = c.resource
        where r.token is c.expected_token and coalesce(r.version, 0) = c.expected_version
        on conflict (resource) do update set token = excluded.token, holder = excluded.holder,
            version = excluded.version, content_type = excluded.content_type,
            bytes = excluded.bytes, value_token = excluded.value_token,
            value_holder = excluded.value_holder
        returning resource
        "#,
    )
    .bind(to_json(&rows))
    .bind(blob)
    .fetch_all(connection)
    .await?;
    let applied: HashSet<String> = applied.into_iter().collect();
    Ok(changes.iter().map(|change| applied.contains(change.resource.as_str())).collect())
}

/// Lists resources that have a value, in the byte order of their names.
pub(super) async fn list_rows(pool: &SqlitePool, page: &Page) -> Result<Vec<Listed>, sqlx::Error> {
    let rows: Vec<ListedRow> = sqlx::query_as(
        r#"
        select resource, value_token, version, length(bytes) as size
        from storage_resource
        where bytes is not null
            and resource > ?1 and resource >= ?2 and (?3 is null or resource < ?3)
        order by resource
        limit ?4
        "#,
    )
    .bind(&page.after)
    .bind(&page.prefix)
    .bind(page.prefix_end())
    .bind(page.limit)
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(Listed::try_from).collect()
}

fn to_json(rows: &impl Serialize) -> String {
    serde_json::to_string(rows).expect("names, numbers and text are JSON")
}
