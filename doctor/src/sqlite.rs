//! A file of SQLite.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use sqlx::{Row, Sqlite, sqlite::SqliteConnectOptions};

#[cfg(target_os = "linux")]
use crate::disk;
use crate::{
    check::{Check, Verdict},
    report::Report,
    sql::Session,
};

const UNSEEN: &str = "whether the disk keeps what was synced, and the loss of the disk; a backup that was copied into the \
                      file; who else copies or replaces it";

/// Runs all checks. The file must exist. It is only read: a connection that may write would move the log into the
/// file when it is closed.
///
/// # Errors
/// If it can't be opened.
pub async fn examine(options: &SqliteConnectOptions) -> Result<Report, sqlx::Error> {
    let reading = options.clone().create_if_missing(false).read_only(true);
    let mut session = Session::<Sqlite>::connect(&reading).await?;
    let version: String = session.row("select sqlite_version()").await?.try_get(0)?;
    let mode: String = session.row("pragma journal_mode").await?.try_get(0)?;
    session.close().await?;
    // WAL is the only mode that is kept in the file.
    let journal_mode = Check::ok("journal_mode", mode.as_str()).unless(
        mode == "wal",
        Verdict::Unseen,
        "each connection has its own mode: with OFF or MEMORY, a crash in the middle of a commit corrupts the file",
        "set it to wal, which needs a file system with shared memory: pragma journal_mode = wal",
    );
    let checks = vec![
        #[cfg(target_os = "linux")]
        disk::file_system(options.get_filename()),
        journal_mode,
    ];
    let report = Report::new(format!("sqlite {version}, of this program"), None, checks);
    Ok(Report { unseen: Some(UNSEEN.to_owned()), ..report })
}

/// The check that this user may write the file.
///
/// The file is not opened. To close a file ends all POSIX locks that its process has on it, and SQLite would go on as if
/// it had them: another process would delete the write-ahead log in use.
pub fn writable(file: &Path) -> Check {
    let written = accessat(CWD, file, Access::WRITE_OK, AtFlags::EACCESS);
    let found = match written {
        Ok(()) => format!("{} can be written", file.display()),
        Err(error) => format!("{} can't be written: {error}", file.display()),
    };
    Check::ok("file", found).unless(
        written.is_ok(),
        Verdict::Unfit,
        "nothing can be locked or written here",
        "let this user write the file, and create files beside it",
    )
}

/// The check for a file that sessions of any program write to. No file shows this setting.
pub fn synchronous() -> Check {
    Check::bad(
        Verdict::Unseen,
        "synchronous",
        "each connection has its own",
        "with NORMAL or OFF, a power loss loses committed fences and grants",
        "let every connection that writes keep FULL, the default, or set EXTRA",
    )
}
