//! The statements of the PostgreSQL store.

mod changes;

use std::ops::Range;

use fence::ResourceName;
use sqlx::{AssertSqlSafe, Executor, PgConnection};

pub(super) use self::changes::apply_changes;
use crate::{
    row::{Row, StoredValue},
    store::{
        Change, Wanted,
        columns::{decode_listed, decode_rows},
        error::{ANSWER_TIMEOUT, UnreadableRow},
        list::{Listed, Page, ReadablePage},
    },
};

/// For how long a transaction that holds locks may send nothing, in milliseconds.
const IDLE_MS: usize = 500;
/// Values of so many bytes may take a good part of that to be sent.
const LARGE: usize = 1 << 16;

/// What has to be durable before rows that were loaded are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// No more than what PostgreSQL shows: what the primary has committed.
    Visible,
    /// What was loaded, on the synchronous standbys too, if there are any. PostgreSQL shows a commit
    /// whose wait for them was cut off. The commit of this statement waits for them behind it.
    Durable,
    /// The same, and the caller looks whether standbys have the commit. Without a new commit, a primary
    /// whose standbys have left would see that they once had all earlier ones, and confirm it.
    Confirmed,
}

/// Writes a record whose commit waits for the synchronous standbys, on a condition.
macro_rules! record {
    ($condition:literal) => {
        concat!(
            "select pg_logical_emit_message(true, 'storage-server', 'loaded') where ",
            $condition
        )
    };
}

const LOAD: &str = concat!(
    r#"
    select r.token, r.holder, r.version, r.content_type, length(r.bytes)::bigint as size,
        case when length(r.bytes) <= w.most_bytes then r.bytes end as bytes,
        r.value_token, r.value_holder, r.answers,
        (select token from storage.common_fence where id = 1) as common_fence,
        ("#,
    record!("$3 and ($4 or current_setting('synchronous_standby_names') <> '')"),
    r#") as record
    from unnest($1::text[], $2::bigint[]) with ordinality as w (resource, most_bytes, ordinal)
    left join storage.resource r on r.resource = w.resource
    order by w.ordinal
    "#
);

/// Loads rows, all as of one moment.
pub(super) async fn load_rows(
    connection: &mut PgConnection,
    wanted: &[Wanted<'_>],
    loading: Loading,
) -> Result<Vec<Result<Row, UnreadableRow>>, sqlx::Error> {
    let resources: Vec<_> = wanted.iter().map(|wanted| wanted.resource.as_str()).collect();
    let most_bytes: Vec<_> = wanted.iter().map(|wanted| wanted.value.most_bytes()).collect();
    let rows = sqlx::query(LOAD)
        .bind(resources)
        .bind(most_bytes)
        .bind(loading != Loading::Visible)
        .bind(loading == Loading::Confirmed)
        .fetch_all(connection)
        .await?;
    Ok(decode_rows(wanted, &rows))
}

/// Begins a transaction, and loads rows under their locks.
///
/// If this server is paused before it commits, PostgreSQL ends the transaction and frees the rows.
pub(super) async fn lock_and_load(
    connection: &mut PgConnection,
    wanted: &[Wanted<'_>],
) -> Result<Vec<Result<Row, UnreadableRow>>, sqlx::Error> {
    let begin = format!(
        "begin;
        set local lock_timeout = '100ms';
        set local idle_in_transaction_session_timeout = {IDLE_MS}"
    );
    connection.execute(AssertSqlSafe(begin)).await?;
    lock_rows(connection, wanted).await?;
    load_rows(connection, wanted, Loading::Visible).await
}

/// Gives a transaction that holds locks the time to send large values: a second for each MiB. Until
/// PostgreSQL has received all of them, the transaction is idle for it.
pub(super) async fn allow_sending(
    connection: &mut PgConnection,
    changes: &[Change<'_>],
) -> Result<(), sqlx::Error> {
    let bytes: usize = changes
        .iter()
        .map(|change| match &change.after.value {
            StoredValue::Present(value) => value.content.bytes.len(),
            StoredValue::Absent | StoredValue::Unknown | StoredValue::NotLoaded(_) => 0,
        })
        .sum();
    if bytes < LARGE {
        return Ok(());
    }
    let millis = IDLE_MS + (bytes >> 10).min(ANSWER_TIMEOUT.as_millis() as usize);
    sqlx::query("select set_config('idle_in_transaction_session_timeout', $1, true)")
        .bind(millis.to_string())
        .execute(connection)
        .await
        .map(drop)
}

/// Makes durable what was loaded before.
pub(super) async fn await_standbys(
    connection: &mut PgConnection,
    loading: Loading,
) -> Result<(), sqlx::Error> {
    let record = match loading {
        Loading::Visible => return Ok(()),
        Loading::Durable => record!("current_setting('synchronous_standby_names') <> ''"),
        Loading::Confirmed => record!("true"),
    };
    connection.execute(record).await.map(drop)
}

/// Locks rows in the byte order of their names, so that servers don't deadlock.
///
/// A row that doesn't exist can't be locked, and a rival could insert it after it was loaded. So it
/// is inserted as the row of a resource that was never used. One that exists is only locked: its
/// update is left out.
async fn lock_rows(
    connection: &mut PgConnection,
    wanted: &[Wanted<'_>],
) -> Result<(), sqlx::Error> {
    let resources: Vec<_> = wanted.iter().map(|wanted| wanted.resource.as_str()).collect();
    sqlx::query(
        r#"
        insert into storage.resource (resource, holder, version)
        select resource, '', 0
        from unnest($1::text[]) with ordinality as w (resource, ordinal)
        order by ordinal
        on conflict (resource) do update set holder = excluded.holder where false
        "#,
    )
    .bind(resources)
    .execute(connection)
    .await
    .map(drop)
}

/// Whether another transaction holds a lock on the row at this moment, for each resource.
///
/// The rows that are free are locked until the commit. It makes nothing durable, so it waits for no disk and no
/// standby.
pub(super) async fn locked_rows(
    connection: &mut PgConnection,
    resources: &[&ResourceName],
) -> Result<Vec<bool>, sqlx::Error> {
    let resources: Vec<_> = resources.iter().map(|resource| resource.as_str()).collect();
    sqlx::query_scalar(
        r#"
        with free as materialized (
            select resource
            from storage.resource
            where resource = any($1)
            for no key update skip locked
        )
        select r.resource is not null and free.resource is null
        from unnest($1) with ordinality as w (resource, ordinal)
        left join storage.resource r on r.resource = w.resource
        left join free on free.resource = r.resource
        where set_config('synchronous_commit', 'off', true) = 'off'
        order by w.ordinal
        "#,
    )
    .bind(resources)
    .fetch_all(connection)
    .await
}

/// Lists resources that have a value, in the byte order of their names.
pub(super) async fn list_rows(
    connection: &mut PgConnection,
    page: &Page,
) -> Result<Vec<Listed>, sqlx::Error> {
    let Range { start, end } = page.range();
    let select = r#"
        select resource, value_token, version, length(bytes)::bigint as size
        from storage.resource
        where bytes is not null
            and resource >= $1 and resource < $2
        order by resource
        limit $3
        "#;
    let mut readable = ReadablePage::new(page);
    loop {
        let rows = sqlx::query(select).bind(&start).bind(&end).bind(i64::from(readable.limit));
        let rows = rows.fetch_all(&mut *connection).await?;
        if let Some(listed) = readable.take(decode_listed(&rows)) {
            return Ok(listed);
        }
    }
}

/// Makes a record in the write-ahead log durable, so that a real commit is tested.
pub(super) async fn probe(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let is_read_only: bool = sqlx::query_scalar(
        r#"
        select current_setting('transaction_read_only')::bool
            or pg_logical_emit_message(true, 'storage-server', 'probe') is null
        "#,
    )
    .fetch_one(connection)
    .await?;
    if is_read_only {
        return Err(sqlx::Error::Configuration("it is read-only".into()));
    }
    Ok(())
}

/// Ends sessions of this user's servers that have waited for a synchronous standby for so long that
/// their server has closed the connection. They don't notice that, and PostgreSQL would run out of
/// connections.
pub(super) async fn end_silent_sessions(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(
        r#"
        select pg_terminate_backend(pid)
        from pg_stat_activity
        where usename = current_user and application_name = 'storage-server'
            and wait_event = 'SyncRep' and state_change < now() - make_interval(secs => $1)
        "#,
    )
    .bind(ANSWER_TIMEOUT.as_secs_f64() - 1.0)
    .execute(connection)
    .await
    .map(drop)
}
