//! A file of SQLite.

use sqlx::{Row, Sqlite, sqlite::SqliteConnectOptions};

use crate::{
    check::{Check, Verdict},
    disk,
    report::Report,
    sql::Session,
};

const UNSEEN: &str = "whether the disk keeps what was synced, and the loss of the disk; a backup that was copied into the \
                      file; who else copies or replaces it";

/// Runs all checks. The file must exist.
///
/// # Errors
/// If it can't be opened.
pub async fn examine(options: &SqliteConnectOptions) -> Result<Report, sqlx::Error> {
    let mut session = Session::<Sqlite>::connect(&options.clone().create_if_missing(false)).await?;
    let version: String = session.row("select sqlite_version()").await?.try_get(0)?;
    let mode: String = session.row("pragma journal_mode").await?.try_get(0)?;
    let mut checks = disk::checks(options.get_filename());
    // WAL is the only mode that is kept in the file.
    checks.push(Check::ok("journal_mode", mode.as_str()).unless(
        mode == "wal",
        Verdict::Warning,
        "each connection has its own mode: with OFF or MEMORY, a crash in the middle of a commit corrupts the file; \
         without wal, clients also wait for each other's reads",
        "set it to wal, which needs a file system with shared memory: pragma journal_mode = wal",
    ));
    let report = Report::new(format!("sqlite {version}, of this program"), None, checks);
    Ok(Report { unseen: Some(UNSEEN.to_owned()), ..report })
}

/// The check for a file that sessions of any program write to. No file shows this setting.
pub fn synchronous() -> Check {
    Check::bad(
        Verdict::Warning,
        "synchronous",
        "each connection has its own",
        "with NORMAL or OFF, a power loss loses committed fences and grants",
        "let every connection that writes keep FULL, the default, or set EXTRA",
    )
}
