//! Databases that share a server, because a server takes seconds to start.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::postgres::Postgres;

/// New databases in one PostgreSQL, which starts with the first of them.
#[derive(Debug, Default)]
pub struct Databases {
    postgres: Option<Postgres>,
    count: u32,
}

impl Databases {
    /// Creates an empty database, and returns its URL.
    ///
    /// # Errors
    /// If PostgreSQL isn't installed or doesn't start.
    pub async fn create(&mut self) -> anyhow::Result<String> {
        let postgres = match &mut self.postgres {
            Some(postgres) => postgres,
            none => none.insert(Postgres::start().await?),
        };
        self.count += 1;
        let name = format!("database_{}", self.count);
        let mut connection = PgConnection::connect(&postgres.url()).await?;
        connection.execute(AssertSqlSafe(format!("create database {name}"))).await?;
        connection.close().await?;
        Ok(postgres.url_of(&name))
    }
}
