//! A file of SQLite with the tables of the locks.

use std::{fs::OpenOptions, path::Path, str::FromStr};

use lock_client::Locks;
use sqlx::{Row, sqlite::SqliteConnectOptions};

use super::{
    database::{self, Session, unavailable},
    finding::{Cure, Finding, Severity},
    locking,
    report::Report,
};
use crate::failure::Failure;

const TABLES: [&str; 2] = ["fenced_lock", "fenced_lock_queue"];
const FACTS: &str = "select sqlite_version() as version,
    coalesce((select group_concat(name, ' ') from sqlite_master where type = 'table'), '')
        as tables";
/// The magic numbers of NFS, and of SMB in its versions.
#[cfg(target_os = "linux")]
const NETWORK: [u32; 3] = [0x6969, 0xff53_4d42, 0xfe53_4d42];

/// Opens the file, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    run_checks(url, locks).await.map_err(|error| unavailable(locks, &error))
}

async fn run_checks(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?;
    let file = options.get_filename().to_owned();
    let mut session = Session::<sqlx::Sqlite>::connect(&options).await?;
    let facts = session.row(FACTS).await?;
    let (version, tables): (String, String) = (facts.try_get("version")?, facts.try_get("tables")?);
    let tables: Vec<_> = tables.split(' ').collect();
    let missing: Vec<_> = TABLES.into_iter().filter(|table| !tables.contains(table)).collect();
    let mut findings = vec![
        writable(&file),
        file_system(&file),
        database::tables(&missing, "migrations/sqlite/lock"),
        database::locking(locks).await,
    ];
    // The client of the locks has set it, and the file keeps it. A session that was open before does
    // not see it.
    let mut session = Session::<sqlx::Sqlite>::connect(&options).await?;
    findings.push(journal(session.row("pragma journal_mode").await?.try_get("journal_mode")?));
    Ok(Report::from_findings(format!("sqlite {version}, of this program"), None, findings))
}

fn writable(file: &Path) -> Finding {
    const CHECK: &str = "file";
    let shown = file.display();
    match OpenOptions::new().write(true).open(file) {
        Ok(_) => Finding::ok(CHECK, format!("{shown} can be written")),
        Err(error) => Finding::bad(
            Severity::Unusable,
            CHECK,
            format!("{shown} can't be written: {error}"),
            locking::UNUSABLE,
            Cure::advice("let this user write the file, and create files beside it"),
        ),
    }
}

/// Checks that the file is on this machine.
fn file_system(file: &Path) -> Finding {
    const CHECK: &str = "file system";
    #[cfg(target_os = "linux")]
    if rustix::fs::statfs(file).is_ok_and(|system| NETWORK.contains(&(system.f_type as u32))) {
        return Finding::bad(
            Severity::TokenLoss,
            CHECK,
            format!("{} is on a file system of the network", file.display()),
            "its file locks may not work between machines: then two holders get one token, or the \
             file is corrupted",
            Cure::advice("keep the file on a disk of this machine, for the processes of it only"),
        );
    }
    Finding::ok(CHECK, format!("{} is not seen to be on the network", file.display()))
}

fn journal(mode: String) -> Finding {
    const CHECK: &str = "journal";
    if mode == "wal" {
        let found = "the journal mode is wal; each grant is on the disk before its answer";
        return Finding::ok(CHECK, found);
    }
    Finding::bad(
        Severity::Warning,
        CHECK,
        format!("the journal mode is {mode}, and can't be set to wal"),
        "no token, but clients wait for each other's reads, and may not get an answer in time",
        Cure::advice("keep the file on a file system with shared memory, which wal needs"),
    )
}
