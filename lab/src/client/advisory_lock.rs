//! An advisory lock of PostgreSQL. It belongs to a session, and has no token and no expiry.

use std::str::FromStr;

use anyhow::Context;
use fence::ResourceName;
use sqlx::{
    AssertSqlSafe, ConnectOptions, PgConnection, Row,
    postgres::{PgConnectOptions, PgRow},
    raw_sql,
};

use super::{command::Terms, report::Reports};
use crate::record::EventKind;

pub(super) struct AdvisoryLock {
    database: PgConnection,
    /// The lock's key, as an SQL expression.
    key: String,
}

impl AdvisoryLock {
    pub(super) async fn connect(url: &str, lock: &ResourceName) -> anyhow::Result<Self> {
        // PgBouncer rejects a connection that sets it.
        let options = PgConnectOptions::from_str(url)?.extra_float_digits(None);
        let key = format!("hashtext('{}')", lock.as_str().replace('\'', "''"));
        Ok(Self { database: options.connect().await?, key })
    }

    /// Tries once.
    pub(super) async fn acquire(
        &mut self,
        terms: Terms,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        reports.add(match self.call("pg_try_advisory_lock").await? {
            true => EventKind::Acquired {
                ttl_ms: None,
                remaining_ms: None,
                resource: None,
                holder: None,
                beside: None,
            },
            false => EventKind::GaveUp { waited_ms: terms.wait_ms },
        });
        Ok(())
    }

    pub(super) async fn release(&mut self) -> anyhow::Result<EventKind> {
        Ok(match self.call("pg_advisory_unlock").await? {
            true => EventKind::Released,
            false => EventKind::LeaseLost,
        })
    }

    /// Calls a function in one message: a pooler in transaction mode has no prepared statements.
    async fn call(&mut self, function: &str) -> anyhow::Result<bool> {
        let sql = format!("select {function}({})", self.key);
        let row: PgRow = raw_sql(AssertSqlSafe(sql))
            .fetch_one(&mut self.database)
            .await
            .with_context(|| format!("{function} failed"))?;
        Ok(row.try_get(0)?)
    }
}
