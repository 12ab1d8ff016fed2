//! Locks in MariaDB.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_client::backend::Backend;
use sqlx::{Connection, MySqlConnection, Row};
use tokio::sync::Mutex;

use super::{
    super::hold::RoundTrip,
    server::{ANSWER_TIMEOUT, Server},
    upserts::two_upserts,
};

const TABLE: &str = "create table least (name varchar(40) primary key, value bigint not null)";
/// InnoDB skips an update that changes nothing, so this changes the value.
const UPSERT: &str =
    "insert into least values ('same', 1) on duplicate key update value = value + 1";
const READ: &str = "select 1";
const COMMANDS: &str = "show global status where variable_name = 'Com_call_procedure'";

/// A MariaDB, and a connection to it.
pub(in super::super) struct MariaDb {
    mariadb: testbed::MariaDb,
    connection: Mutex<MySqlConnection>,
}

impl MariaDb {
    pub(in super::super) async fn start() -> anyhow::Result<Self> {
        let mariadb = testbed::MariaDb::start().await?;
        let mut connection = MySqlConnection::connect(&mariadb.url()).await?;
        lock_client::mariadb::install(&mut connection).await?;
        sqlx::raw_sql(TABLE).execute(&mut connection).await?;
        Ok(Self { mariadb, connection: Mutex::new(connection) })
    }
}

#[async_trait]
impl RoundTrip for MariaDb {
    async fn round_trip(&self) -> anyhow::Result<()> {
        sqlx::query(READ).execute(&mut *self.connection.lock().await).await?;
        Ok(())
    }
}

#[async_trait]
impl Server for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn title(&self) -> &'static str {
        "MariaDB, over a Unix socket"
    }

    fn url(&self) -> String {
        self.mariadb.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        Ok(Arc::new(
            lock_client::mariadb::MariaDb::open(&self.url())?.answer_within(ANSWER_TIMEOUT),
        ))
    }

    fn least_subject(&self) -> &'static str {
        "two upserts by sqlx"
    }

    async fn least(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        two_upserts::<sqlx::MySql>(&mut *self.connection.lock().await, UPSERT, count).await
    }

    fn goal_of_least(&self) -> f64 {
        1.5
    }

    fn round_trip_subject(&self) -> &'static str {
        "a read by sqlx"
    }

    fn command(&self) -> &'static str {
        "calls of procedures in MariaDB"
    }

    async fn commands(&self) -> anyhow::Result<Option<u64>> {
        let mut connection = self.connection.lock().await;
        let row = sqlx::raw_sql(COMMANDS).fetch_one(&mut *connection).await?;
        Ok(Some(row.try_get::<String, _>(1)?.parse()?))
    }
}
