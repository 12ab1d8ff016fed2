//! A machine that loses power: a storage server, and its database on a disk.

use std::{fs, time::Duration};

use anyhow::{bail, ensure};
use sqlx::{Connection, Executor, PgConnection};
use tempfile::TempDir;
use testbed::{Disk, Postgres, Program, StorageServer, Unsynced, wait::until_async};

use super::setting::Setting;
use crate::programs;

/// The server sets `synchronous_commit=on` for its sessions. So this sets it later, in every
/// transaction that changes a resource.
const COMMIT_CARELESSLY: &str = "
    create or replace function commit_carelessly() returns trigger language plpgsql as $$
    begin
        perform set_config('synchronous_commit', 'off', true);
        return null;
    end $$;
    create or replace trigger commit_carelessly before insert or update on storage.resource
        for each statement execute function commit_carelessly();";

pub(super) struct Machine {
    setting: Setting,
    database: Database,
}

enum Database {
    Sqlite { disk: Disk, url: String, _folder: TempDir },
    Postgres(Box<Postgres>),
}

impl Machine {
    pub(super) async fn new(setting: Setting) -> anyhow::Result<Self> {
        let database = match setting {
            Setting::SqliteFull
            | Setting::SqliteNormal
            | Setting::SqliteOff
            | Setting::SqliteCrash
            | Setting::SqliteCrashNormal => {
                let folder = TempDir::with_prefix("fenced-")?;
                let seen = folder.path().join("disk");
                fs::create_dir(&seen)?;
                let url = format!("sqlite:{}", seen.join("fenced.db").display());
                let server = programs::storage_server()?;
                // The file is older than the losses, as it is in production.
                let mut command = server.command();
                command.args(["migrate", "--database-url", &url]);
                let migrated = tokio::process::Command::from(command).output().await?;
                let error = String::from_utf8_lossy(&migrated.stderr);
                ensure!(migrated.status.success(), "storage-server migrate: {error}");
                Database::Sqlite { disk: Disk::new(&seen)?, url, _folder: folder }
            }
            Setting::PostgresOn | Setting::PostgresCommitOff | Setting::PostgresFsyncOff => {
                Database::Postgres(Box::new(Postgres::start_on_disk().await?))
            }
        };
        Ok(Self { setting, database })
    }

    pub(super) async fn start_server(&self) -> anyhow::Result<StorageServer> {
        let server = programs::storage_server()?;
        match (&self.database, self.setting) {
            (
                Database::Sqlite { disk, url, .. },
                Setting::SqliteNormal | Setting::SqliteCrashNormal,
            ) => start_careless_server(disk, url, "normal").await,
            (Database::Sqlite { disk, url, .. }, Setting::SqliteOff) => {
                start_careless_server(disk, url, "off").await
            }
            (Database::Sqlite { disk, url, .. }, _) => {
                StorageServer::start_on_disk(&server, disk, url, &[]).await
            }
            (Database::Postgres(postgres), _) => {
                StorageServer::start_on(&server, &postgres.url(), &[]).await
            }
        }
    }

    /// Starts a server that never syncs. Once it is killed, its file is as that of a server that crashed
    /// between the write of the log and its sync.
    pub(super) async fn start_server_that_will_crash(&self) -> anyhow::Result<StorageServer> {
        let Database::Sqlite { disk, url, .. } = &self.database else {
            bail!("only on SQLite does a server write the log by itself");
        };
        start_careless_server(disk, url, "off").await
    }

    /// Gives PostgreSQL its careless setting behind the back of a server that runs, because the server
    /// would not accept it.
    pub(super) async fn become_careless(&self) -> anyhow::Result<()> {
        let Database::Postgres(postgres) = &self.database else { return Ok(()) };
        match self.setting {
            Setting::PostgresCommitOff => {
                let mut connection = PgConnection::connect(&postgres.url()).await?;
                connection.execute(sqlx::raw_sql(COMMIT_CARELESSLY)).await?;
                // The default is 200 ms, within which a busy machine may be too slow to lose power.
                postgres.reload_with("wal_writer_delay=1s")?;
            }
            Setting::PostgresFsyncOff => {
                postgres.reload_with("fsync=off")?;
                let is_off = async || {
                    let mut connection = PgConnection::connect(&postgres.url()).await?;
                    let fsync: String =
                        sqlx::query_scalar("show fsync").fetch_one(&mut connection).await?;
                    Ok(fsync == "off")
                };
                until_async(Duration::from_secs(20), is_off).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Kills everything, loses what was not synced, and starts the database again.
    pub(super) async fn lose_power(
        &mut self,
        mut server: StorageServer,
        unsynced: Unsynced,
    ) -> anyhow::Result<()> {
        match &mut self.database {
            Database::Sqlite { disk, .. } => {
                server.process().kill()?;
                disk.lose_power(unsynced)
            }
            Database::Postgres(postgres) => {
                postgres.lose_power(unsynced).await?;
                server.process().kill()?;
                postgres.start_again().await
            }
        }
    }
}

async fn start_careless_server(
    disk: &Disk,
    url: &str,
    synchronous: &str,
) -> anyhow::Result<StorageServer> {
    let program = Program::this("serve-carelessly")?;
    StorageServer::start_on_disk(&program, disk, url, &["--synchronous", synchronous]).await
}
