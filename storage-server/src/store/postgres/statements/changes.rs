//! The statements that change rows on the condition that they still are as loaded.

use fence::Token;
use sqlx::PgConnection;

use crate::store::{
    Change,
    columns::{ChangedRow, made_in_groups, under_common_fence},
};

/// The changes of a batch, as a table.
macro_rules! change {
    () => {
        r#"
        select * from unnest(
            $1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bool[], $6::bigint[], $7::text[],
            $8::bigint[], $9::bool[], $10::text[], $11::bytea[], $12::bigint[], $13::text[],
            $14::text[], $15::text[], $17::bigint[], $18::bool[]
        ) with ordinality as change (
            resource, expected_token, expected_holder, expected_version, expected_value, token,
            holder, version, keeps_value, content_type, bytes, value_token, value_holder, expected_answers,
            answers, grp, is_check, ordinal
        )
        "#
    };
}

/// Whether the row of a change is as expected.
macro_rules! is_as_expected {
    () => {
        r#"(
            r.version = c.expected_version and r.holder = c.expected_holder
            and r.token is not distinct from c.expected_token
            and (r.bytes is not null) = c.expected_value
            and r.answers is not distinct from c.expected_answers
        )"#
    };
}

/// Whether the common fence still is that of the batch.
macro_rules! is_under_common_fence {
    () => {
        "(select token from storage.common_fence where id = 1) is not distinct from $16::bigint"
    };
}

/// Changes rows that exist.
macro_rules! update {
    () => {
        concat!(
            r#"
        update storage.resource r
        set token = c.token, holder = c.holder, version = c.version,
            content_type = case when c.keeps_value then r.content_type else c.content_type end,
            bytes = case when c.keeps_value then r.bytes else c.bytes end,
            value_token = case when c.keeps_value then r.value_token else c.value_token end,
            value_holder = case when c.keeps_value then r.value_holder else c.value_holder end,
            answers = c.answers
        from change c
        where r.resource = c.resource and
        "#,
            is_under_common_fence!(),
        )
    };
}

/// Inserts rows.
macro_rules! insert {
    () => {
        r#"
        insert into storage.resource (
            resource, token, holder, version, content_type, bytes, value_token, value_holder,
            answers
        )
        select resource, token, holder, version, content_type, bytes, value_token, value_holder,
            answers
        from change
        where
        "#
    };
}

/// Whether there was no row when the change was decided.
macro_rules! is_new {
    () => {
        "(expected_version = 0 and expected_token is null)"
    };
}

const UPDATE: &str = concat!(
    "with change as (",
    change!(),
    ")",
    update!(),
    " and ",
    is_as_expected!(),
    " returning r.resource"
);

const UPDATE_OR_INSERT: &str = concat!(
    "with change as (",
    change!(),
    "), updated as (",
    update!(),
    " and ",
    is_as_expected!(),
    " returning r.resource), inserted as (",
    insert!(),
    is_new!(),
    " and ",
    is_under_common_fence!(),
    " order by ordinal on conflict (resource) do nothing returning resource)
    select resource from updated union all select resource from inserted",
);

/// Leaves out whole groups. A change without a group is one by itself.
///
/// All rows that exist are locked first, in their order, also those that are only compared. PostgreSQL
/// compares the latest version of a row that it has locked. The broken groups are known before the first row
/// is changed: each array is filled once, before its first use. A subquery in its place would be run again for
/// each row that a rival has changed, and see less.
///
/// A new row can't be locked. If a rival inserts it meanwhile, the insert fails, and with it the
/// statement: `on conflict do nothing` would make half a group. A new row that is only compared is inserted
/// too, so that no rival can insert it.
///
/// The sort and the locks have no values, which would be copied with their rows.
const UPDATE_OR_INSERT_GROUPS: &str = concat!(
    "with change as (",
    change!(),
    r#"), expected as materialized (
        select ordinal, resource, grp, expected_token, expected_holder, expected_version, expected_value,
            expected_answers
        from change
    ), locked as materialized (select c.ordinal, c.grp, "#,
    is_as_expected!(),
    r#" as is_as_expected
        from expected c
        join storage.resource r on r.resource = c.resource
        order by c.ordinal
        for no key update of r
    ), broken as materialized (
        select grp from locked where not is_as_expected
        union all
        select grp from expected
        where ordinal <> all (array(select ordinal from locked)) and not "#,
    is_new!(),
    "), updated as (",
    update!(),
    r#" and not c.is_check and c.grp <> all (array(select grp from broken))
        returning r.resource
    ), inserted as ("#,
    insert!(),
    is_under_common_fence!(),
    r#" and ordinal <> all (array(select ordinal from locked))
            and grp <> all (array(select grp from broken))
        order by ordinal
        returning resource
    )
    select resource from updated union all select resource from inserted"#,
);

/// Applies changes in one statement, which compares each row, under its lock, with its loaded
/// state. Most batches have no new row, and the statement without an insert is faster.
///
/// Rows are locked in the byte order of their names, so that servers don't deadlock. A nested loop
/// takes its rows from the arrays, which are sorted so, or from the index, whose collation is "C".
pub(in crate::store::postgres) async fn apply_changes(
    connection: &mut PgConnection,
    changes: &[Change<'_>],
) -> Result<Vec<bool>, sqlx::Error> {
    let (common_fence, current) = under_common_fence(changes);
    let group = |(place, change): (usize, &&Change<'_>)| {
        change.group.map_or(-1 - place as i64, |group| group as i64)
    };
    let groups: Vec<_> = current.iter().enumerate().map(group).collect();
    let checks: Vec<_> = current.iter().map(|change| change.is_check()).collect();
    let rows: Vec<_> = current.into_iter().map(ChangedRow::from).collect();
    let statement = if changes.iter().any(|change| change.group.is_some()) {
        UPDATE_OR_INSERT_GROUPS
    } else if rows.iter().any(ChangedRow::is_new) {
        UPDATE_OR_INSERT
    } else {
        UPDATE
    };
    // All rows are fetched, not only the first: the statement commits after its last row.
    let made: Vec<String> = sqlx::query_scalar(statement)
        .bind(column(&rows, |row| row.resource))
        .bind(column(&rows, |row| row.expected_token))
        .bind(column(&rows, |row| row.expected_holder))
        .bind(column(&rows, |row| row.expected_version))
        .bind(column(&rows, |row| row.expected_value))
        .bind(column(&rows, |row| row.token))
        .bind(column(&rows, |row| row.holder))
        .bind(column(&rows, |row| row.version))
        .bind(column(&rows, |row| row.keeps_value))
        .bind(column(&rows, |row| row.content_type))
        .bind(column(&rows, |row| row.bytes))
        .bind(column(&rows, |row| row.value_token))
        .bind(column(&rows, |row| row.value_holder))
        .bind(column(&rows, |row| row.expected_answers.clone()))
        .bind(column(&rows, |row| row.answers.clone()))
        .bind(common_fence.map(Token::as_i64))
        .bind(groups)
        .bind(checks)
        .fetch_all(connection)
        .await?;
    made_in_groups(changes, made)
}

/// One column of the changed rows, as an array for PostgreSQL.
fn column<'a, T>(rows: &[ChangedRow<'a>], value: fn(&ChangedRow<'a>) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}
