//! Locks in PostgreSQL.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_client::backend::Backend;
use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;

use super::{
    super::hold::RoundTrip,
    server::{ANSWER_TIMEOUT, Other, Server},
    upserts::two_upserts,
};
use crate::bench::load;

const TABLE: &str = "
    create extension pg_stat_statements;
    create table least (name text primary key, value bigint not null) with (fillfactor = 50);";
const UPSERT: &str = "
    insert into least as l values ('same', 1) on conflict (name) do update set value = l.value + 1";
const READ: &str = "select 1";
/// All statements but the holders' reads, and those of the bench itself.
const COMMANDS: &str = "
    select coalesce(sum(calls), 0)::bigint from pg_stat_statements
    where query <> 'select $1' and query not like '%pg_stat_statements%'";

/// A PostgreSQL, and a connection to it.
pub(in super::super) struct Postgres {
    postgres: testbed::Postgres,
    connection: Mutex<PgConnection>,
}

impl Postgres {
    pub(in super::super) async fn start() -> anyhow::Result<Self> {
        let settings = ["shared_preload_libraries=pg_stat_statements"];
        let postgres = testbed::Postgres::start_with(&settings).await?;
        let mut connection = PgConnection::connect(&postgres.url()).await?;
        lock_client::postgres::install(&mut connection).await?;
        sqlx::raw_sql(TABLE).execute(&mut connection).await?;
        Ok(Self { postgres, connection: Mutex::new(connection) })
    }
}

#[async_trait]
impl RoundTrip for Postgres {
    async fn round_trip(&self) -> anyhow::Result<()> {
        sqlx::query(READ).execute(&mut *self.connection.lock().await).await?;
        Ok(())
    }
}

#[async_trait]
impl Server for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn title(&self) -> &'static str {
        "PostgreSQL, over a Unix socket"
    }

    fn url(&self) -> String {
        self.postgres.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        Ok(Arc::new(
            lock_client::postgres::Postgres::open(&self.url())?.answer_within(ANSWER_TIMEOUT),
        ))
    }

    fn least_subject(&self) -> &'static str {
        "two upserts by pgbench"
    }

    async fn least(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        load::pgbench_times(&self.postgres, &format!("{UPSERT};\n{UPSERT};\n"), count).await
    }

    fn goal_of_least(&self) -> f64 {
        1.5
    }

    fn round_trip_subject(&self) -> &'static str {
        "a read by sqlx"
    }

    fn others(&self) -> &'static [Other] {
        &[Other { subject: "two upserts by sqlx", once_in: 1 }]
    }

    async fn measure_other(&self, _number: usize, count: usize) -> anyhow::Result<Vec<Duration>> {
        two_upserts::<sqlx::Postgres>(&mut *self.connection.lock().await, UPSERT, count).await
    }

    fn command(&self) -> &'static str {
        "statements that PostgreSQL carried out, other than the holders' reads"
    }

    async fn commands(&self) -> anyhow::Result<Option<u64>> {
        let mut connection = self.connection.lock().await;
        let calls: i64 = sqlx::query_scalar(COMMANDS).fetch_one(&mut *connection).await?;
        Ok(Some(calls.try_into()?))
    }
}
