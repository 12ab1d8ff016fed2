//! `lab doctor store`.

use std::{
    io::{self, Write},
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use anyhow::bail;
use clap::Args;

use super::{mariadb, object_storage, postgres, redis, report::Report, sqlite};
use crate::output::Output;

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

impl StoreDoctor {
    /// Examines the store, and prints the report. The exit code is 0 if nothing is wrong, and
    /// otherwise 1.
    ///
    /// # Errors
    /// If the store can't be examined, or this is interrupted. Its objects are removed all the same.
    pub async fn run(
        self,
        interrupted: impl Future<Output = anyhow::Error>,
    ) -> anyhow::Result<ExitCode> {
        let mut interrupted = pin!(interrupted);
        let seconds = Duration::from_secs(self.seconds);
        let report = match self.database.split([':', '+']).next() {
            Some("s3" | "az") => {
                object_storage::examine(&self.database, seconds, interrupted).await?
            }
            _ => tokio::select! {
                biased;
                interruption = &mut interrupted => return Err(interruption),
                report = examine(&self.database) => report?,
            },
        };
        if self.markdown {
            writeln!(io::stdout().lock(), "{}", report.markdown_row())?;
        } else {
            self.output.print(&report)?;
        }
        Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

async fn examine(url: &str) -> anyhow::Result<Report> {
    match url.split([':', '+']).next() {
        Some("postgres" | "postgresql") => postgres::examine(url).await,
        Some("mariadb" | "mysql") => mariadb::examine(url).await,
        Some("sqlite") => sqlite::examine(url).await,
        Some("redis" | "unix") => redis::examine(url).await,
        _ => bail!(
            "the URL begins with none of s3:, postgres:, mariadb:, mysql:, sqlite:, redis: and \
             redis+unix:"
        ),
    }
}
