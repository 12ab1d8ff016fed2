//! The transactions of one client, with the fence or with one of the wrong ways.

use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use fence::ResourceName;
use sqlx::{AnyConnection, AssertSqlSafe, Executor, Row, any::AnyRow};
use tokio::time::sleep;

use super::dialect::Dialect;
use crate::hammer::database::{Attempt, Connection, Offer, Seen, Variant, Written};

const FOREIGN: &str = "variants of object storage are rejected before a database is opened";

/// One client's connection, in which it claims, reads and writes.
pub(super) struct SqlConnection {
    pub(super) sql: AnyConnection,
    pub(super) dialect: Dialect,
    pub(super) variant: Option<Variant>,
    pub(super) table: String,
}

#[async_trait]
impl Connection for SqlConnection {
    async fn read(&mut self, offer: &Offer) -> anyhow::Result<Attempt<Seen>> {
        let read = self.claim_and_read(offer).await;
        self.end(read).await
    }

    async fn write(&mut self, offer: &Offer, increments: u64) -> anyhow::Result<Attempt<Written>> {
        let written = self.claim_and_write(offer, increments).await;
        self.end(written).await
    }

    async fn increment(
        &mut self,
        offer: &Offer,
        pause: Duration,
    ) -> anyhow::Result<Attempt<(Seen, Written)>> {
        let incremented = async {
            let Some(seen) = self.claim_and_read(offer).await? else {
                return Ok(None);
            };
            sleep(pause).await;
            let written = self.checked_write(offer, seen.increments + 1).await?;
            Ok(written.map(|written| (seen, written)))
        };
        let incremented = incremented.await;
        self.end(incremented).await
    }
}

/// `None` if the token was rejected.
type Checked<T> = Result<Option<T>, sqlx::Error>;

impl SqlConnection {
    async fn claim_and_read(&mut self, offer: &Offer) -> Checked<Seen> {
        self.begin().await?;
        if !self.claim(offer).await? {
            return Ok(None);
        }
        read_row(&mut self.sql, &self.table, &offer.resource).await.map(Some)
    }

    /// The wrong ways claim only when they read, if at all.
    async fn claim_and_write(&mut self, offer: &Offer, increments: u64) -> Checked<Written> {
        self.begin().await?;
        if self.variant.is_none() && !self.claim(offer).await? {
            return Ok(None);
        }
        self.checked_write(offer, increments).await
    }

    async fn claim(&mut self, offer: &Offer) -> Result<bool, sqlx::Error> {
        let (resource, token, table) = (&offer.resource, offer.fence.token, &self.table);
        match self.variant {
            None => {
                let claim = self.dialect.claim(offer);
                self.sql.execute(sqlx::raw_sql(AssertSqlSafe(claim))).await?;
                Ok(true)
            }
            Some(Variant::Exists) => {
                let raise = format!(
                    "update {table}_fence set token = {token}
                     where resource = '{resource}' and token < {token}"
                );
                self.sql.execute(AssertSqlSafe(raise)).await?;
                Ok(self.highest_token(resource).await? == token.as_i64())
            }
            Some(Variant::SelectThenUpdate) => {
                if self.highest_token(resource).await? > token.as_i64() {
                    return Ok(false);
                }
                let raise = format!(
                    "update {}_fence set token = {token} where resource = '{resource}'",
                    self.table
                );
                self.sql.execute(AssertSqlSafe(raise)).await?;
                Ok(true)
            }
            Some(Variant::RowToken) => Ok(true),
            Some(Variant::Metadata | Variant::HeadThenPut) => unreachable!("{FOREIGN}"),
        }
    }

    /// Writes if the variant's check accepts the token.
    async fn checked_write(&mut self, offer: &Offer, increments: u64) -> Checked<Written> {
        let (resource, token) = (&offer.resource, offer.fence.token);
        if self.variant == Some(Variant::SelectThenUpdate)
            && self.highest_token(resource).await? > token.as_i64()
        {
            return Ok(None);
        }
        let table = &self.table;
        let condition = match self.variant {
            None | Some(Variant::SelectThenUpdate) => String::new(),
            Some(Variant::Exists) => format!(
                "and exists (
                    select 1 from {table}_fence f
                    where f.resource = '{resource}' and f.token = {token}
                )"
            ),
            Some(Variant::RowToken) => format!("and token <= {token}"),
            Some(Variant::Metadata | Variant::HeadThenPut) => unreachable!("{FOREIGN}"),
        };
        let write = format!(
            "update {table}
             set version = version + 1, token = {token}, increments = {increments}
             where resource = '{resource}' {condition}"
        );
        let version = match self.dialect {
            Dialect::Postgres | Dialect::Sqlite => {
                let write = AssertSqlSafe(format!("{write} returning version"));
                let rows = self.sql.fetch_all(write).await?;
                rows.first().map(|row| number(row, 0)).transpose()?
            }
            // An update returns no columns, but no other client can change the row before the
            // commit.
            Dialect::MariaDb => {
                let written = self.sql.execute(AssertSqlSafe(write)).await?;
                let version = read_row(&mut self.sql, &self.table, resource).await?.state;
                (written.rows_affected() > 0).then_some(version)
            }
        };
        Ok(version.map(|version| Written { state: version, replaced: version - 1 }))
    }

    async fn highest_token(&mut self, resource: &ResourceName) -> Result<i64, sqlx::Error> {
        let table = &self.table;
        let select = format!("select token from {table}_fence where resource = '{resource}'");
        self.sql.fetch_one(AssertSqlSafe(select)).await?.try_get(0)
    }

    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.has_transactions() {
            self.sql.execute(self.dialect.begin()).await?;
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), sqlx::Error> {
        if !self.has_transactions() {
            return Ok(());
        }
        if let Some(statement) = self.dialect.before_commit().filter(|_| self.variant.is_none()) {
            self.sql.execute(statement).await?;
        }
        self.sql.execute("commit").await.map(|_| ())
    }

    /// Commits or rolls back, and returns the outcome.
    async fn end<T>(&mut self, checked: Checked<T>) -> anyhow::Result<Attempt<T>> {
        let ended = match checked {
            Ok(Some(result)) => self.commit().await.map(|()| Some(result)),
            other => other,
        };
        if let Ok(Some(result)) = ended {
            return Ok(Attempt::Committed(result));
        }
        if self.has_transactions() {
            // This fails if the database has rolled back already.
            let _ = self.sql.execute("rollback").await;
        }
        match ended {
            Ok(_) => Ok(Attempt::Rejected),
            Err(error) if is_rejection(&error) => Ok(Attempt::Rejected),
            Err(error) if self.dialect.is_contention(&error) => Ok(Attempt::TryAgain),
            Err(error) => Err(error).context("the database failed"),
        }
    }

    /// SQLite's transactions have one writer at a time: the wrong ways are wrong only without them.
    fn has_transactions(&self) -> bool {
        self.dialect != Dialect::Sqlite || self.variant.is_none()
    }
}

/// Reads the state and the increments of a resource.
pub(super) async fn read_row(
    sql: &mut AnyConnection,
    table: &str,
    resource: &ResourceName,
) -> Result<Seen, sqlx::Error> {
    let select = format!("select version, increments from {table} where resource = '{resource}'");
    let row = sql.fetch_one(AssertSqlSafe(select)).await?;
    Ok(Seen { state: number(&row, 0)?, increments: number(&row, 1)? })
}

fn number(row: &AnyRow, column: usize) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn is_rejection(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else {
        return false;
    };
    ["ZF001", "ZF002"].iter().any(|&rejection| {
        error.code().is_some_and(|code| code == rejection) || error.message().starts_with(rejection)
    })
}
