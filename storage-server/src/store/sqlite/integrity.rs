//! An SQLite file as a whole: whether it is damaged, and copies of it.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read},
    mem,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteLockingMode},
};

use crate::store::error::OpenError;

/// Parses a database URL. A percent sign in a path is one: the URL is not encoded.
pub(crate) fn parse_url(url: &str) -> Result<SqliteConnectOptions, OpenError> {
    SqliteConnectOptions::from_str(&url.replace('%', "%25")).map_err(OpenError::InvalidUrl)
}

/// Returns the path of the file at a database URL.
pub(crate) fn path(url: &str) -> Result<PathBuf, OpenError> {
    Ok(parse_url(url)?.get_filename().to_owned())
}

/// Checks that a file can be read and written. SQLite says of one that can't only that it can't, or opens it
/// for reading alone. Creates a file that is missing, if that is wanted, for its owner alone.
fn require_writable_file(file: &Path, database: &str, create: bool) -> Result<(), OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600);
    match options.open(file) {
        Ok(file) => {
            // It is never closed, as in `foreign_log`.
            mem::forget(file);
            Ok(())
        }
        Err(source) => Err(OpenError::File { database: database.to_owned(), source }),
    }
}

/// The file of the write-ahead log, or of its index, beside a file.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Checks that a file can be used and is whole, or creates it if that is wanted. `database` is its address,
/// for errors.
pub(super) async fn require_whole_file(
    file: &Path,
    database: &str,
    create: bool,
) -> Result<(), OpenError> {
    let exists = file.exists();
    if exists {
        require_writable_file(file, database, false)?;
    }
    check_integrity(file, database).await?;
    if exists { Ok(()) } else { require_writable_file(file, database, create) }
}

/// Checks that a file is whole, if it exists. `database` is its address, for errors.
///
/// The connection is read-only: when it is closed, it doesn't move a foreign log into the file.
pub(super) async fn check_integrity(file: &Path, database: &str) -> Result<(), OpenError> {
    let damaged = |reason| OpenError::Damaged { database: database.to_owned(), reason };
    if let Some(reason) = foreign_log(file) {
        return Err(damaged(reason));
    }
    if !file.exists() {
        return Ok(());
    }
    let options = SqliteConnectOptions::new().filename(file).disable_statement_logging();
    let checked = match open_and_check(&options.clone().read_only(true)).await {
        // The power failed during a change of a file that has no log yet, such as a restored one. Only
        // a connection that may write undoes the rest of the change.
        Err(error) if needs_rollback(&error) => open_and_check(&options).await,
        checked => checked,
    };
    match checked {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => Err(damaged(reason)),
        Err(error) if is_damage(&error) => Err(damaged(error.to_string())),
        Err(source) => Err(OpenError::Connect { database: database.to_owned(), source }),
    }
}

async fn open_and_check(options: &SqliteConnectOptions) -> Result<Option<String>, sqlx::Error> {
    let mut connection = options.connect().await?;
    let found = quick_check(&mut connection).await;
    connection.close().await?;
    found
}

/// What is wrong with the file's structure, if anything. Reads all of it.
pub(crate) async fn quick_check(
    connection: &mut SqliteConnection,
) -> Result<Option<String>, sqlx::Error> {
    let found: String = sqlx::query_scalar("pragma quick_check(1)").fetch_one(connection).await?;
    Ok((found != "ok").then_some(found))
}

/// Why the write-ahead log beside a file can't be its own, if so. SQLite would apply it without a
/// question, and mix two databases.
///
/// The header of a file says whether it has a log, and is durable before the log begins. Backups have
/// none. So if one was copied over a file whose log was left behind, this is certain to find it.
pub(crate) fn foreign_log(file: &Path) -> Option<String> {
    // SQLite follows links, too.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let log = beside(&file, "-wal");
    if std::fs::metadata(&log).map_or(0, |log| log.len()) == 0 {
        return None;
    }
    let mut header = [0; 20];
    let read = File::open(&file).and_then(|mut file| {
        let read = file.read_exact(&mut header);
        // It is never closed: that would free the locks of SQLite on it, if another connection of
        // this process has any.
        mem::forget(file);
        read
    });
    match read {
        Ok(()) if header[18..20] == [1, 1] => Some(format!(
            "{} is the write-ahead log of another file, such as of the one that it replaced",
            log.display()
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Some(format!("{} is there, but its file is not", log.display()))
        }
        _ => None,
    }
}

/// Whether the error says that the file is damaged: SQLITE_CORRUPT or SQLITE_NOTADB.
pub(crate) fn is_damage(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(11 | 26))
}

/// Whether the error says that another process uses the file: SQLITE_BUSY.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(5)
}

/// Whether the file has a journal of a change that was cut off: SQLITE_READONLY_ROLLBACK.
fn needs_rollback(error: &sqlx::Error) -> bool {
    code(error) == Some(776)
}

/// SQLite's primary result code.
pub(super) fn primary_code(error: &sqlx::Error) -> Option<u32> {
    Some(code(error)? & 0xff)
}

/// SQLite's extended result code.
fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Writes a copy of the database as of this moment into an empty file. The copy has no log.
pub(crate) async fn copy_into(
    database: SqliteConnectOptions,
    copy: &str,
) -> Result<(), sqlx::Error> {
    let mut connection = database.disable_statement_logging().connect().await?;
    sqlx::query("vacuum into ?").bind(copy).execute(&mut connection).await?;
    connection.close().await
}

/// Opens a file that nobody else uses, and keeps others out as long as the connection is open. The
/// file's structure is not looked at.
pub(crate) async fn open_alone(file: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options =
        SqliteConnectOptions::new().filename(file).locking_mode(SqliteLockingMode::Exclusive);
    let mut connection = options.disable_statement_logging().connect().await?;
    // In this locking mode, the lock stays after the transaction.
    sqlx::raw_sql("begin exclusive; commit").execute(&mut connection).await?;
    Ok(connection)
}

/// Moves everything into the file, which has no write-ahead log afterwards.
pub(crate) async fn move_log_into_file(
    connection: &mut SqliteConnection,
) -> Result<(), sqlx::Error> {
    let pragmas = "pragma synchronous = full; pragma journal_mode = delete";
    sqlx::raw_sql(pragmas).execute(connection).await?;
    Ok(())
}

/// Whether the file has the tables of a storage server.
pub(crate) async fn has_resources(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    let table = "select count(*) > 0 from sqlite_schema where name = 'storage_resource'";
    sqlx::query_scalar(table).fetch_one(connection).await
}
