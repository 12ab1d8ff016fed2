//! Servers that take long to start.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::Postgres;

/// What the worlds of a run share, each of which has a database of its own. It starts with the first.
#[derive(Debug, Default)]
pub struct Shared {
    postgres: Option<Postgres>,
    databases: u32,
}

impl Shared {
    /// Makes a new database in PostgreSQL, and returns its URL.
    ///
    /// # Errors
    /// If PostgreSQL isn't installed or doesn't start.
    pub async fn database(&mut self) -> anyhow::Result<String> {
        let postgres = match &mut self.postgres {
            Some(postgres) => postgres,
            none => none.insert(Postgres::start().await?),
        };
        self.databases += 1;
        let name = format!("world_{}", self.databases);
        let mut connection = PgConnection::connect(&postgres.url()).await?;
        connection.execute(AssertSqlSafe(format!("create database {name}"))).await?;
        connection.close().await?;
        Ok(postgres.url_of(&name))
    }
}
