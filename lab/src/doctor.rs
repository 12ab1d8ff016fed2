//! `lab doctor store`: examines what the fence would stand on.

use std::{
    fmt,
    io::{self, Write},
    pin::pin,
    process::ExitCode,
    str::FromStr,
    time::{Duration, SystemTime},
};

use ::doctor::{
    Check, NOT_EXAMINED, Report, Verdict, mariadb,
    object_storage::{self, Site},
    postgres, redis,
    sql::Session,
    sqlite,
};
use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use sqlx::{
    Postgres, Row, Sqlite, mysql::MySqlConnectOptions, postgres::PgConnectOptions,
    sqlite::SqliteConnectOptions,
};

use crate::{bucket::Bucket, output::Output};

const NOT_INSTALLED: &str = "the fence is not installed in this database, or is too old, or this role does not \
                             see it; see migrations/README.md";

/// What to examine.
#[derive(Debug, Subcommand)]
pub enum Doctor {
    /// A store: object storage, PostgreSQL, MariaDB, SQLite or Redis
    ///
    /// Object storage is tried out, in a folder of its own that is removed: are conditions honoured, and
    /// atomic? Of a database, the settings are read: what can it lose? Exits with 0 if a fence can be kept, 1
    /// or 4 if it can't, 3 if that could not be seen, and 69 if the store could not be examined.
    Store(StoreDoctor),
}

/// Which store to examine, and how.
#[derive(Args, Debug)]
pub struct StoreDoctor {
    /// The store: s3://BUCKET/FOLDER, az://CONTAINER/FOLDER, postgres://…, mariadb://…, sqlite:FILE
    /// or redis://…
    ///
    /// Append ?endpoint=URL for a server that is neither Amazon's nor Azure's. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    /// AWS_REGION and so on are taken from the environment, for Azure AZURE_STORAGE_ACCOUNT_NAME and
    /// AZURE_STORAGE_ACCOUNT_KEY. The fence must be installed in PostgreSQL, MariaDB or SQLite.
    #[arg(long, value_name = "URL")]
    database: String,
    /// How long several clients use object storage at once
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Print a row of a table in Markdown: date, store, verdict, and what was found
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    #[command(flatten)]
    output: Output,
}

/// The store could not be examined. The process has an exit code of its own then.
#[derive(Debug)]
pub struct NotExamined;

impl NotExamined {
    /// The exit code.
    pub const EXIT_CODE: u8 = NOT_EXAMINED;
}

impl fmt::Display for NotExamined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store could not be examined")
    }
}

impl Doctor {
    /// Examines, and prints the report. The exit code is that of the worst verdict.
    ///
    /// # Errors
    /// [`NotExamined`] if the store can't be examined; another error if the report can't be printed, or this is
    /// interrupted. Objects are removed all the same.
    pub async fn run(
        self,
        interrupted: impl Future<Output = anyhow::Error>,
    ) -> anyhow::Result<ExitCode> {
        let Self::Store(StoreDoctor { database, seconds, markdown, output }) = self;
        let mut interrupted = pin!(interrupted);
        let mut is_interrupted = false;
        let interruption = async {
            let interruption = interrupted.as_mut().await;
            is_interrupted = true;
            interruption
        };
        let report = match examine(&database, Duration::from_secs(seconds), interruption).await {
            Err(error) if is_interrupted => return Err(error),
            Err(error) => return Err(error.context(NotExamined)),
            Ok(report) => report,
        };
        if markdown {
            let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let day = now.split('T').next().unwrap_or_default();
            writeln!(io::stdout().lock(), "{}", report.markdown_row(day))?;
        } else {
            output.print(&report)?;
        }
        Ok(ExitCode::from(report.verdict().exit_code()))
    }
}

async fn examine(
    url: &str,
    time: Duration,
    interrupted: impl Future<Output = anyhow::Error>,
) -> anyhow::Result<Report> {
    if let Some("s3" | "az") = url.split(':').next() {
        return examine_bucket(url, time, interrupted).await;
    }
    tokio::select! {
        biased;
        interruption = interrupted => Err(interruption),
        report = examine_database(url) => report,
    }
}

async fn examine_bucket(
    url: &str,
    time: Duration,
    interrupted: impl Future<Output = anyhow::Error>,
) -> anyhow::Result<Report> {
    let bucket = Bucket::from_url(url)?;
    let (address, folder) = (bucket.endpoint().map(str::to_owned), bucket.folder().clone());
    let clients = Box::new(move |wire, retries| bucket.client_through(wire, retries));
    let site = Site::open(clients, address, &folder).await?;
    object_storage::examine(&site, time, interrupted).await
}

async fn examine_database(url: &str) -> anyhow::Result<Report> {
    match url.split([':', '+']).next() {
        Some("postgres" | "postgresql") => {
            let options = PgConnectOptions::from_str(url)?;
            let fence = "select pg_catalog.to_regprocedure('fence.version()') is not null";
            let mut session = Session::<Postgres>::connect(&options).await?;
            ensure!(session.row(fence).await?.try_get::<bool, _>(0)?, NOT_INSTALLED);
            Ok(postgres::examine(&options).await?)
        }
        Some("mariadb" | "mysql") => {
            let report = mariadb::examine(&MySqlConnectOptions::from_str(url)?).await?;
            // Of an old version, or of MySQL, nothing else is known.
            let is_fence = |check: &Check| {
                check.verdict == Verdict::Unfit || check.found.starts_with("fence.resources ")
            };
            ensure!(report.checks.iter().any(is_fence), NOT_INSTALLED);
            Ok(report)
        }
        Some("sqlite") => {
            let options = SqliteConnectOptions::from_str(url)?.read_only(true);
            let mut report = sqlite::examine(&options).await?;
            let fence =
                "select count(*) from sqlite_master where type = 'table' and name = 'fence'";
            let mut session = Session::<Sqlite>::connect(&options).await?;
            ensure!(session.row(fence).await?.try_get::<i64, _>(0)? == 1, NOT_INSTALLED);
            report.checks.push(sqlite::synchronous());
            Ok(report)
        }
        Some("redis" | "unix") => {
            let mut server = redis::Server::connect(::redis::Client::open(url)?).await?;
            Ok(redis::examine(&mut server).await?)
        }
        _ => bail!(
            "the URL begins with none of s3:, az:, postgres:, mariadb:, mysql:, sqlite:, redis: and \
             redis+unix:"
        ),
    }
}
