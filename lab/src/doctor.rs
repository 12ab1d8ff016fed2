//! `lab doctor store`: examines what the fence would stand on.

use std::{
    io::{self, Write},
    pin::pin,
    process::ExitCode,
    str::FromStr,
    time::{Duration, SystemTime},
};

use ::doctor::{
    NOT_EXAMINED, Report, mariadb,
    object_storage::{self, Site},
    postgres, redis, sqlite,
};
use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use sqlx::{
    Row, Sqlite, mysql::MySqlConnectOptions, postgres::PgConnectOptions,
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

impl Doctor {
    /// Examines, and prints the report. The exit code is that of the worst verdict.
    ///
    /// # Errors
    /// If the report can't be printed, or this is interrupted. Objects are removed all the same.
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
            Err(error) => {
                eprintln!("lab: {error:#}");
                return Ok(ExitCode::from(NOT_EXAMINED));
            }
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
            let report = postgres::examine(&PgConnectOptions::from_str(url)?, None).await?;
            let table = report.checks.iter().find(|check| check.name == "table");
            ensure!(table.is_some_and(|it| it.found.contains("fence.fence")), NOT_INSTALLED);
            Ok(report)
        }
        Some("mariadb" | "mysql") => {
            let report = mariadb::examine(&MySqlConnectOptions::from_str(url)?).await?;
            ensure!(report.checks.iter().any(|check| check.name == "table"), NOT_INSTALLED);
            Ok(report)
        }
        Some("sqlite") => {
            let options = SqliteConnectOptions::from_str(url)?;
            let mut report = sqlite::examine(&options).await.context("can't open the database")?;
            let fence =
                "select count(*) from sqlite_master where type = 'table' and name = 'fence'";
            let mut session = ::doctor::sql::Session::<Sqlite>::connect(&options).await?;
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
