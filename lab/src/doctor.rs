//! `lab doctor`: examines what the fence would stand on.

mod check;
mod mariadb;
mod object_storage;
mod postgres;
mod redis;
mod report;
mod sqlite;
mod store;

use std::process::ExitCode;

use clap::Subcommand;

/// What to examine.
#[derive(Debug, Subcommand)]
pub enum Doctor {
    /// A store: object storage, PostgreSQL, MariaDB, SQLite or Redis
    ///
    /// Object storage is tried out, in a folder of its own that is removed: are conditions honoured, and
    /// atomic? Of a database, the settings are read: what can it lose? Exits with 0 if nothing is wrong,
    /// 1 if something is, and 2 if the store could not be examined.
    Store(store::StoreDoctor),
}

impl Doctor {
    /// Examines, and prints the report.
    ///
    /// # Errors
    /// If nothing can be examined, or it is interrupted.
    pub async fn run(
        self,
        interrupted: impl Future<Output = anyhow::Error>,
    ) -> anyhow::Result<ExitCode> {
        match self {
            Self::Store(doctor) => doctor.run(interrupted).await,
        }
    }
}
