//! Tables of locks in PostgreSQL, MariaDB and SQLite.

use lock_client::{
    Ttl,
    conformance::{Failure, Subject},
    mariadb::MariaDb,
    postgres::Postgres,
    sqlite::Sqlite,
};
use sqlx::{Executor, SqliteConnection};
use tempfile::TempDir;
use testbed::PgBouncer;

use super::PATIENCE;
use crate::{lock_service::ttl, mariadb, postgres, sqlite};

const SHORTEST: u64 = 100;

/// PostgreSQL, directly or through PgBouncer.
pub(crate) struct Tables {
    server: testbed::Postgres,
    bouncer: Option<PgBouncer>,
}

impl Tables {
    pub(crate) async fn start() -> Self {
        Self { server: postgres::locked().await.0, bouncer: None }
    }

    pub(crate) async fn start_behind_pgbouncer() -> Self {
        let server = postgres::locked().await.0;
        let bouncer = Some(PgBouncer::start(&server).await.unwrap());
        Self { server, bouncer }
    }
}

impl Subject for Tables {
    type Backend = Postgres;
    const IS_FAIR: bool = true;

    fn connect(&self) -> Postgres {
        let url = self.bouncer.as_ref().map_or_else(|| self.server.url(), PgBouncer::url);
        Postgres::open(&url).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(SHORTEST)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        Ok(self.server.pause().await?)
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        Ok(self.server.resume()?)
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        Ok(self.server.crash().await?)
    }

    async fn start(&mut self) -> Result<(), Failure> {
        Ok(self.server.start_again().await?)
    }
}

pub(crate) struct Maria(testbed::MariaDb);

impl Maria {
    pub(crate) async fn start() -> Self {
        Self(mariadb::locked().await.0)
    }
}

impl Subject for Maria {
    type Backend = MariaDb;
    const IS_FAIR: bool = true;

    fn connect(&self) -> MariaDb {
        MariaDb::open(&self.0.url()).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(SHORTEST)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        Ok(self.0.pause().await?)
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        Ok(self.0.resume()?)
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        Ok(self.0.crash()?)
    }

    async fn start(&mut self) -> Result<(), Failure> {
        Ok(self.0.start_again().await?)
    }
}

/// A file of SQLite, and the connection of somebody else who may lock it.
pub(crate) struct File {
    folder: TempDir,
    somebody_else: SqliteConnection,
}

impl File {
    pub(crate) async fn create() -> Self {
        let (folder, _) = sqlite::locked().await;
        let somebody_else = sqlite::connect(&folder).await;
        Self { folder, somebody_else }
    }
}

/// A file has no server: somebody else's transaction holds up all others.
impl Subject for File {
    type Backend = Sqlite;
    const IS_FAIR: bool = true;

    fn connect(&self) -> Sqlite {
        Sqlite::open(&sqlite::url(&self.folder)).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(SHORTEST)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        self.somebody_else.execute("begin immediate").await?;
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        self.somebody_else.execute("rollback").await?;
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        self.pause().await
    }

    async fn start(&mut self) -> Result<(), Failure> {
        self.resume().await
    }
}
