//! Resources in an SQLite file.

pub(super) mod doctor;
mod file;
pub(crate) mod integrity;
pub(crate) mod maintenance;
mod statements;
mod writer;

use std::{num::NonZero, ops::Range, thread::available_parallelism, time::Duration};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection, Sqlite, SqliteConnection, Transaction,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, error::Elapsed, timeout, timeout_at},
};

use self::{
    file::OpenedFile,
    integrity::{parse_url, primary_code, require_whole_file},
    statements::{apply_changes, list_rows, load_rows, probe, writes_large_value},
    writer::Writer,
};
use super::{
    Change, Decide, ReadsAtOnce, Store, Wanted, changes_between,
    error::{
        ANSWER_TIMEOUT, ApplyError, OpenError, ReadError, Unreachable, UnreadableRow, no_answer,
    },
    kept_pool::{KeptPool, ReplacedAt},
    list::{Listing, NAMES_OF_PAGE, Page},
    open::MissingFile,
    schema::{self, Migrations, prepare},
};
use crate::row::Row;

/// How long to wait while another process writes to the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest page cache of the connection that writes, in units of -1024 bytes, and of each reading one.
/// SQLite empties the cache of a connection whenever another one has written.
const WRITER_CACHE: &str = "-65536";
const READER_CACHE: &str = "-8192";
const CACHE_SIZE: &str = "cache_size";
/// The page size of a new file. A commit writes each changed page to the log and syncs it, and most
/// rows are small: with SQLite's default of 4096, a fifth fewer writes fit in a second. But
/// writes of 1 MiB take 17 to 20 % longer.
const PAGE_SIZE: u32 = 1024;
/// How many pages the log has before it is moved into the file. A page that changes often is moved
/// once for all its changes.
const LOG_PAGES: &str = "8192";
/// The connections over which the committer loads rows.
const LOADING: u32 = 1;
/// The connections of other loads on which something is decided.
const READING_DURABLE: u32 = 3;
/// Other reads of rows use one connection for each two processors, but at least two and at most this many. Each
/// has a thread, which large values keep busy, and with more of them writes would wait for a processor.
const READING: u32 = 4;
/// The connections that list. A list may take long, and no other read waits for it.
const LISTING: u32 = 1;
/// How long a read waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Resources in an SQLite file, in WAL mode with `synchronous=FULL`: a commit is on the disk before
/// it is reported.
#[derive(Debug)]
pub(super) struct SqliteStore {
    url: String,
    file: OpenedFile,
    /// SQLite has one writer at a time, and this mutex is fairer than its locks.
    writer: Mutex<Writer>,
    loading: KeptPool<Sqlite>,
    reading_durable: KeptPool<Sqlite>,
    reading: KeptPool<Sqlite>,
    reads_at_once: ReadsAtOnce,
    listing: KeptPool<Sqlite>,
}

impl SqliteStore {
    /// Opens the file, and applies the migrations or checks them.
    ///
    /// `synchronous` is how durable a commit is when it is reported. Less than `FULL` loses commits
    /// when the power fails.
    pub(super) async fn open(
        url: &str,
        missing_file: MissingFile,
        migrations: Migrations,
        synchronous: SqliteSynchronous,
    ) -> Result<Self, OpenError> {
        let create = missing_file == MissingFile::Create && migrations == Migrations::Apply;
        let options = options(url)?.synchronous(synchronous).create_if_missing(create);
        let connect_error = |source| OpenError::Connect { database: url.to_owned(), source };
        let path = options.get_filename();
        let is_new = !path.exists();
        // A database in memory has no file, and is rejected below.
        if !is_in_memory(url) {
            require_whole_file(path, url, create).await?;
        }
        let mut writer = options.connect().await.map_err(connect_error)?;
        let mode: String = sqlx::query_scalar("pragma journal_mode")
            .fetch_one(&mut writer)
            .await
            .map_err(connect_error)?;
        if mode != "wal" {
            let reason = format!("it must be a file in WAL mode, and its mode is '{mode}'");
            return Err(OpenError::Unsafe { database: url.to_owned(), reason });
        }
        prepare_schema(migrations, &mut writer, url).await?;
        sync_log(&mut writer, url).await?;
        let file = OpenedFile::note(options.get_filename())
            .map_err(|error| connect_error(error.into()))?;
        if is_new {
            tracing::warn!(
                database = url,
                "the file did not exist: it was created, without fences"
            );
        }
        // A later connection must not create the file again after it was deleted.
        let options = options.create_if_missing(false);
        let for_readers = options.clone().pragma(CACHE_SIZE, READER_CACHE);
        let pool = |connections| {
            let pool = SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(CONNECT_TIMEOUT);
            KeptPool::new(pool, for_readers.clone(), ReplacedAt::default())
        };
        let processors = available_parallelism().map_or(1, NonZero::get) / 2;
        let reading = u32::try_from(processors).unwrap_or(READING).clamp(2, READING);
        Ok(Self {
            url: url.to_owned(),
            file,
            writer: Mutex::new(Writer::new(writer, options)),
            loading: pool(LOADING),
            reading_durable: pool(READING_DURABLE),
            reading: pool(reading),
            reads_at_once: ReadsAtOnce {
                visible: reading as usize,
                durable: READING_DURABLE as usize,
                lists: LISTING as usize,
            },
            listing: pool(LISTING),
        })
    }
}

/// How every connection is opened, except for how durable its commits are.
fn options(url: &str) -> Result<SqliteConnectOptions, OpenError> {
    Ok(parse_url(url)?
        .journal_mode(SqliteJournalMode::Wal)
        // On macOS, a plain sync leaves the data in the disk's own cache.
        .pragma("fullfsync", "on")
        .pragma("checkpoint_fullfsync", "on")
        .busy_timeout(BUSY_TIMEOUT)
        .page_size(PAGE_SIZE)
        .pragma(CACHE_SIZE, WRITER_CACHE)
        .pragma("wal_autocheckpoint", LOG_PAGES)
        .disable_statement_logging())
}

fn is_in_memory(url: &str) -> bool {
    url.contains(":memory:") || url.contains("mode=memory")
}

async fn prepare_schema(
    migrations: Migrations,
    connection: &mut SqliteConnection,
    url: &str,
) -> Result<(), OpenError> {
    let table = "select count(*) > 0 from sqlite_schema where name = 'storage_migrations'";
    let exists = sqlx::query_scalar(table).fetch_one(&mut *connection).await;
    let exists =
        exists.map_err(|source| OpenError::Connect { database: url.to_owned(), source })?;
    prepare(migrations, &migrator(), connection, exists, url).await
}

/// Makes all commits durable that the file shows. After a crash between the write of a commit and its sync,
/// SQLite recovers the commit from the page cache of the system. What changes nothing is answered from it
/// without a sync of its own, and a power loss would then take back what was answered.
async fn sync_log(connection: &mut SqliteConnection, url: &str) -> Result<(), OpenError> {
    let synced = probe(connection).await;
    synced.map_err(|source| OpenError::Connect { database: url.to_owned(), source })
}

/// All files of `migrations/sqlite/storage`.
const MIGRATIONS: [(&str, &str); 1] =
    [("resources", include_str!("../../migrations/sqlite/0001_resources.sql"))];

fn migrator() -> Migrator {
    schema::migrator(&MIGRATIONS, "storage_migrations")
}

#[async_trait]
impl Store for SqliteStore {
    fn database(&self) -> &str {
        &self.url
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        self.ask(&self.loading, async |connection| load_rows(connection, wanted).await).await
    }

    async fn read_durable(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        self.load_one(&self.reading_durable, wanted).await
    }

    async fn read(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        self.load_one(&self.reading, wanted).await
    }

    fn reads_at_once(&self) -> ReadsAtOnce {
        self.reads_at_once
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut writer = before_commit(timeout_at(deadline, self.writer()).await)?;
        let applied = if changes.iter().any(writes_large_value) {
            let begun = timeout_at(deadline, writer.connection.begin_with("begin immediate")).await;
            let mut transaction = before_commit(begun)?;
            let applied = timeout_at(deadline, apply_changes(&mut transaction, changes)).await;
            let applied = before_commit(applied)?;
            commit(transaction, deadline).await?;
            applied
        } else {
            let applied =
                timeout_at(deadline, apply_changes(&mut writer.connection, changes)).await;
            after_commit(applied)?
        };
        writer.keep();
        // A file that was deleted meanwhile has taken the changes with it.
        self.file.check().map_err(|error| ApplyError::Unknown(error.into()))?;
        Ok(applied)
    }

    /// A transaction that is the file's only writer from its beginning.
    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut writer = before_commit(timeout_at(deadline, self.writer()).await)?;
        let begun = timeout_at(deadline, writer.connection.begin_with("begin immediate")).await;
        let mut transaction = before_commit(begun)?;
        let loaded = timeout_at(deadline, load_rows(&mut transaction, wanted)).await;
        let before = before_commit(loaded)?.into_iter().collect::<Result<Vec<_>, _>>()?;
        let after = decide(&before);
        let changes = changes_between(wanted, &before, &after);
        if changes.is_empty() {
            before_commit(timeout_at(deadline, transaction.rollback()).await)?;
            writer.keep();
            return Ok(true);
        }
        let applied = timeout_at(deadline, apply_changes(&mut transaction, &changes)).await;
        if before_commit(applied)?.contains(&false) {
            before_commit(timeout_at(deadline, transaction.rollback()).await)?;
            writer.keep();
            return Ok(false);
        }
        commit(transaction, deadline).await?;
        writer.keep();
        // A file that was deleted meanwhile has taken the changes with it.
        self.file.check().map_err(|error| ApplyError::Unknown(error.into()))?;
        Ok(true)
    }

    async fn list(&self, page: &Page) -> Result<Listing, Unreachable> {
        let list = async |connection: &mut _| {
            let page = page.until(last_name(connection, page).await?);
            let listed = list_rows(connection, &page).await?;
            Ok(page.listing(listed))
        };
        self.ask(&self.listing, list).await
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        let probe = async {
            let mut writer = self.writer().await?;
            probe(&mut writer.connection).await?;
            writer.keep();
            Ok(())
        };
        Ok(timeout(ANSWER_TIMEOUT, probe)
            .await
            .unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT)))?)
    }

    /// Moves everything from the write-ahead log into the database file.
    async fn close(&self) {
        let mut writer = self.writer.lock().await;
        // It answers with a row, also if another reader keeps it from copying everything.
        let copy = sqlx::query_scalar("pragma wal_checkpoint(truncate)");
        let reason = match copy.fetch_one(&mut writer.connection).await {
            Ok(0_i64) => return,
            Ok(_) => "another process still reads the database".to_owned(),
            Err(error) => error.to_string(),
        };
        let database = &self.url;
        tracing::warn!(database, "the write-ahead log is not empty, keep its file: {reason}");
    }
}

impl SqliteStore {
    /// Waits for the connection that writes.
    async fn writer(&self) -> Result<MutexGuard<'_, Writer>, sqlx::Error> {
        let mut writer = self.writer.lock().await;
        writer.prepare(&self.file).await?;
        Ok(writer)
    }

    /// Loads one row. All that SQLite shows was synced.
    async fn load_one(
        &self,
        connections: &KeptPool<Sqlite>,
        wanted: Wanted<'_>,
    ) -> Result<Row, ReadError> {
        let load = async |connection: &mut _| load_rows(connection, &[wanted]).await;
        let mut rows = self.ask(connections, load).await?;
        Ok(rows.pop().expect("one row is wanted")?)
    }

    /// Runs a statement that changes nothing.
    async fn ask<T>(
        &self,
        connections: &KeptPool<Sqlite>,
        statement: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, Unreachable> {
        let taken_after = std::time::Instant::now();
        let mut connection = connections.take().await?;
        match timeout(ANSWER_TIMEOUT, statement(&mut connection)).await {
            Ok(answer) => {
                let answer = answer?;
                connections.keep(connection, taken_after);
                // The answer must be of the file whose fences count.
                self.file.check().map_err(sqlx::Error::from)?;
                Ok(answer)
            }
            Err(_) => {
                connection.close_on_drop();
                Err(no_answer(ANSWER_TIMEOUT).into())
            }
        }
    }
}

/// The last name that may be looked at for a page, if there are more.
async fn last_name(
    connection: &mut SqliteConnection,
    page: &Page,
) -> Result<Option<String>, sqlx::Error> {
    let Range { start, end } = page.range();
    let select = r#"
        select resource
        from storage_resource
        where resource >= ?1 and resource < ?2
        order by resource
        limit 1 offset ?3
        "#;
    sqlx::query_scalar(select)
        .bind(start)
        .bind(end)
        .bind(NAMES_OF_PAGE - 1)
        .fetch_optional(connection)
        .await
}

/// The answer of a statement in a transaction that was not committed.
fn before_commit<T>(answered: Result<Result<T, sqlx::Error>, Elapsed>) -> Result<T, ApplyError> {
    answered.unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT))).map_err(ApplyError::Unchanged)
}

async fn commit(transaction: Transaction<'_, Sqlite>, deadline: Instant) -> Result<(), ApplyError> {
    after_commit(timeout_at(deadline, transaction.commit()).await)
}

/// The answer of a statement that commits.
fn after_commit<T>(answered: Result<Result<T, sqlx::Error>, Elapsed>) -> Result<T, ApplyError> {
    answered.unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT))).map_err(apply_error)
}

/// What a failed statement left behind, by SQLite's primary result code.
fn apply_error(error: sqlx::Error) -> ApplyError {
    match primary_code(&error) {
        // BUSY, LOCKED, READONLY, FULL, CONSTRAINT: the statement was rolled back.
        Some(5 | 6 | 8 | 13 | 19) => ApplyError::Unchanged(error),
        _ => ApplyError::Unknown(error),
    }
}
