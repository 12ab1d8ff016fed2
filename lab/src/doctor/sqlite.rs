//! SQLite: what the file says. Each connection has further settings of its own.

use std::str::FromStr;

use anyhow::{Context, ensure};
use sqlx::{ConnectOptions, query_scalar, sqlite::SqliteConnectOptions};

use super::{check::Check, report::Report};

pub(super) async fn examine(url: &str) -> anyhow::Result<Report> {
    let options = SqliteConnectOptions::from_str(url)?;
    let connected = options.connect().await;
    let mut database = connected.context("can't open the database")?;
    let fence = query_scalar::<_, i64>(
        "select count(*) from sqlite_master where type = 'table' and name = 'fence'",
    );
    ensure!(
        fence.fetch_one(&mut database).await? == 1,
        "the fence is not installed in this database; see migrations/README.md"
    );
    let mut fact =
        async |query: &'static str| query_scalar::<_, String>(query).fetch_one(&mut database).await;
    let version = fact("select sqlite_version()").await?;
    let journal = fact("pragma journal_mode").await?;
    let checks = vec![
        Check::new(
            "journal_mode",
            // The file has no other mode than this one.
            (journal == "wal").then_some(true),
            if journal == "wal" { "wal" } else { "each connection has its own" },
            "With OFF or MEMORY, a crash in the middle of a commit corrupts the file.",
        ),
        Check::new(
            "synchronous",
            None,
            "each connection has its own",
            "With NORMAL or OFF, a power loss loses committed fences: every connection needs FULL, the \
             default, or EXTRA.",
        ),
        Check::unseen(
            "Whether the disk keeps what was synced, and is one of this machine: on a network, the locks \
             of files may not work; a restored backup; who copies or replaces the file.",
        ),
    ];
    Ok(Report::new(format!("SQLite {version}"), checks))
}
