//! Connections to databases.

use std::{fmt, io, time::Duration};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Database, Executor, raw_sql};
use tokio::time::timeout;

/// The time limit of one answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection to a database.
pub struct Session<D: Database> {
    connection: D::Connection,
}

impl<D: Database> Session<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    /// Connects to a database.
    ///
    /// # Errors
    /// If there is no answer within 10 seconds, or the database rejects the connection.
    pub async fn connect(
        options: &<D::Connection as Connection>::Options,
    ) -> Result<Self, sqlx::Error> {
        let options = options.clone().disable_statement_logging();
        Ok(Self { connection: limited(options.connect()).await? })
    }

    /// Sends statements in one message, and returns their only row. They are not prepared: PgBouncer in
    /// transaction mode may give the next message to another session.
    ///
    /// # Errors
    /// If there is no answer within 10 seconds, or an error.
    pub async fn row(&mut self, sql: &str) -> Result<D::Row, sqlx::Error> {
        limited(raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.connection)).await
    }

    /// Ends the session.
    ///
    /// # Errors
    /// If it can't be ended in order.
    pub async fn close(self) -> Result<(), sqlx::Error> {
        limited(self.connection.close()).await
    }

    /// Sends statements in one message, and returns all rows.
    ///
    /// # Errors
    /// If there is no answer within 10 seconds, or an error.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<D::Row>, sqlx::Error> {
        limited(raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connection)).await
    }
}

impl<D: Database> fmt::Debug for Session<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// Limits the time of a request to a database to 10 seconds.
///
/// # Errors
/// Those of the request, or that there was no answer.
pub async fn limited<T>(
    request: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(LIMIT, request).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", LIMIT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, reason).into())
    })
}
