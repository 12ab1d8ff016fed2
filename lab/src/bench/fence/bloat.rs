//! The size of the fence table in PostgreSQL after many writes on few resources.

use serde::Serialize;
use sqlx::{Connection, PgConnection};
use testbed::Postgres;

use super::{CLIENTS, postgres, workload::Workload};
use crate::bench::{
    goal::Goal,
    load::{Length, pgbench},
};

const WRITES: u32 = 1_000_000;
const RESOURCES: u32 = 100;
const MOST_PAGES: u32 = 300;

#[derive(Debug, Serialize)]
pub(super) struct Bloat {
    writes: u32,
    resources: u32,
    pages: u32,
    at_most: u32,
    reached: bool,
    #[serde(skip)]
    pub(super) goal: Goal,
}

impl Bloat {
    /// Empties the fence table, writes, and measures the table.
    pub(super) async fn measure(database: &Postgres) -> anyhow::Result<Self> {
        let mut connection = PgConnection::connect(&database.url()).await?;
        let empty = "set fence.remove = 'on'; truncate fence.fence";
        sqlx::raw_sql(empty).execute(&mut connection).await?;
        let script = postgres::script(Workload::ClaimAndUpsert, RESOURCES);
        pgbench(database, &script, CLIENTS, Length::Transactions(WRITES / CLIENTS)).await?;
        let pages =
            "select pg_relation_size('fence.fence') / current_setting('block_size')::bigint";
        let pages: i64 = sqlx::query_scalar(pages).fetch_one(&mut connection).await?;
        Ok(Self::new(pages.try_into()?))
    }

    fn new(pages: u32) -> Self {
        let subject =
            format!("pages of the fence table after {WRITES} writes on {RESOURCES} resources");
        let goal = Goal::at_most(subject, MOST_PAGES.into(), pages.into());
        Self {
            writes: WRITES,
            resources: RESOURCES,
            pages,
            at_most: MOST_PAGES,
            reached: goal.met(),
            goal,
        }
    }
}
