//! A private PostgreSQL with one table, whose rows are protected or not.

use fence::postgres;
use sqlx::{Connection, Executor, PgConnection};

use super::{
    client::{Client, Work},
    lock::Lock,
};
use crate::{
    record::{Actor, Outcome, Recorder, World},
    servers::Postgres,
    shelf::{Guard, TABLE},
};

pub(super) struct ShelfStage {
    world: World,
    resource: &'static str,
    lock: Lock,
    postgres: Postgres,
    database: PgConnection,
}

impl ShelfStage {
    /// Makes the table, with one row.
    pub(super) async fn start(
        world: World,
        resource: &'static str,
        value: &str,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Self> {
        let lock = Lock::start(world, resource, recorder).await?;
        let postgres = Postgres::start().await?;
        let mut database = PgConnection::connect(&postgres.url()).await?;
        database.execute(TABLE).await?;
        let row = sqlx::query("insert into shelf values ($1, $2)").bind(resource).bind(value);
        row.execute(&mut database).await?;
        Ok(Self { world, resource, lock, postgres, database })
    }

    /// Installs the fence, and protects the table.
    pub(super) async fn protect(&mut self) -> anyhow::Result<()> {
        postgres::install(&mut self.database).await?;
        self.database.execute("select fence.protect('shelf', 'resource')").await?;
        Ok(())
    }

    pub(super) fn lock(&self) -> &Lock {
        &self.lock
    }

    pub(super) fn client(
        &self,
        actor: Actor,
        guard: Guard,
        act: [&str; 2],
    ) -> anyhow::Result<Client> {
        let (redis, database) = (&self.lock.url(), &self.postgres.url());
        let work = Work::Shelf { resource: self.resource, act, guard, redis, database };
        Client::start(self.world, actor, work)
    }

    /// How it ended.
    pub(super) async fn outcome(&mut self, recorder: &Recorder) -> anyhow::Result<Outcome> {
        let value = sqlx::query_scalar("select value from shelf where resource = $1")
            .bind(self.resource)
            .fetch_one(&mut self.database)
            .await?;
        Ok(Outcome::of(recorder.events_of(self.world), Some(value)))
    }
}
