//! A database with one table, whose rows are protected or not.

use fence::postgres;
use sqlx::{Connection, Executor, PgConnection};

use super::{
    Work,
    driver::Client,
    lock::Lock,
    two_clients::{self, Course, HeldBack},
};
use crate::{
    client::shelf::{Guard, TABLE},
    record::{Actor, Checks, Outcome, Recorder},
};
use testbed::Databases;

pub(crate) struct ShelfStage {
    resource: &'static str,
    lock: Lock,
    /// Where the database is.
    url: String,
    database: PgConnection,
}

impl ShelfStage {
    /// Makes the table, with one row, and protects it if it is to check tokens.
    pub(crate) async fn start(
        resource: &'static str,
        value: &str,
        checks: Checks,
        databases: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Self> {
        let lock = Lock::start(resource, recorder).await?;
        let url = databases.create().await?;
        let mut database = PgConnection::connect(&url).await?;
        database.execute(TABLE).await?;
        let row = sqlx::query("insert into shelf values ($1, $2)").bind(resource).bind(value);
        row.execute(&mut database).await?;
        if checks == Checks::Tokens {
            postgres::install(&mut database).await?;
            database.execute("select fence.protect('shelf', 'resource')").await?;
        }
        Ok(Self { resource, lock, url, database })
    }

    /// Plays a course in which the two clients do these acts to the row.
    pub(crate) async fn play(
        &mut self,
        course: Course,
        guard: Guard,
        acts: [[&str; 2]; 2],
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let client = |actor| {
            let act = if actor == Actor::Client1 { acts[0] } else { acts[1] };
            let (redis, database) = (&self.lock.url(), &self.url);
            let work = Work::Shelf { resource: self.resource, act, guard, redis, database };
            Client::start(actor, work)
        };
        two_clients::play(course, HeldBack::ByPause, &self.lock, client, recorder).await?;
        let value = sqlx::query_scalar("select value from shelf where resource = $1")
            .bind(self.resource)
            .fetch_one(&mut self.database)
            .await?;
        // The table keeps no tokens beside its values: the last that a client wrote with.
        let written = recorder.events().filter(|event| event.event == "written").last();
        let token = written.and_then(|event| event.token);
        Ok(two_clients::outcome(recorder.events(), value, token))
    }
}
