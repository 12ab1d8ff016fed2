//! PostgreSQL, MariaDB and SQLite under the hammer.

use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use async_trait::async_trait;
use fence::ResourceName;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor, Row, any::AnyRow};
use tokio::time::sleep;

use super::{Anvil, Attempt, Client, Offer, Seen, Variant, Written, dialect::Dialect};

/// A database, with tables of this run's own.
pub(super) struct Sql {
    url: String,
    dialect: Dialect,
    variant: Option<Variant>,
    /// The table of the data. Another one, of the same name and `_fence`, is for the wrong ways.
    table: String,
}

impl Sql {
    pub(super) async fn open(
        url: &str,
        run: &str,
        variant: Option<Variant>,
    ) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        let dialect = Dialect::of_url(url);
        ensure!(
            (dialect, variant) != (Dialect::Sqlite, Some(Variant::Exists)),
            "on SQLite, where one writer waits for the other, this way is not wrong"
        );
        let table = format!("fenced_hammer_{run}");
        let sql = Self { url: url.to_owned(), dialect, variant, table };
        let mut connection = sql.connection().await?;
        if variant.is_none() {
            // What it will do in the end, to find out at once.
            let remove = format!("delete from {} where resource = ''", dialect.fence_table());
            let removed = connection.execute(AssertSqlSafe(remove)).await;
            removed.map_err(|error| match error.to_string() {
                told if told.contains("does not exist")
                    || told.contains("doesn't exist")
                    || told.contains("no such table") =>
                {
                    anyhow!("the fence is not in this database; migrations/README.md tells how")
                }
                told => anyhow!("the hammer needs the rights of who installed the fence: {told}"),
            })?;
        }
        Ok(sql)
    }

    async fn connection(&self) -> anyhow::Result<AnyConnection> {
        AnyConnection::connect(&self.url).await.context("can't connect to the database")
    }

    async fn execute(
        &self,
        connection: &mut AnyConnection,
        statement: String,
    ) -> Result<(), sqlx::Error> {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.map(|_| ())
    }
}

#[async_trait]
impl Anvil for Sql {
    fn isolation_levels(&self) -> &'static [&'static str] {
        self.dialect.isolation_levels()
    }

    async fn prepare(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let mut connection = self.connection().await?;
        let table = &self.table;
        let mut statements = vec![
            format!(
                "create table {table} (
                    resource varchar(64) not null primary key, version bigint not null,
                    token bigint not null, increments bigint not null
                )"
            ),
            format!(
                "create table {table}_fence (
                    resource varchar(64) not null primary key, token bigint not null
                )"
            ),
        ];
        for resource in resources {
            statements.push(format!("insert into {table} values ('{resource}', 0, 0, 0)"));
            statements.push(format!("insert into {table}_fence values ('{resource}', 0)"));
        }
        if self.variant.is_none() {
            statements.push(self.dialect.protect(table));
        }
        for statement in statements {
            let made = self.execute(&mut connection, statement).await;
            made.context("can't make the hammer's tables")?;
        }
        Ok(())
    }

    async fn connect(&self, isolation: &str) -> anyhow::Result<Box<dyn Client>> {
        let mut connection = self.connection().await?;
        self.execute(&mut connection, self.dialect.session(isolation)).await?;
        let Self { dialect, variant, .. } = *self;
        Ok(Box::new(SqlClient { connection, dialect, variant, table: self.table.clone() }))
    }

    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64> {
        let mut connection = self.connection().await?;
        Ok(seen(&mut connection, &self.table, resource).await?.increments)
    }

    async fn clear(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let mut connection = self.connection().await?;
        let table = &self.table;
        let mut statements = Vec::new();
        if self.variant.is_none() {
            statements.extend(self.dialect.unprotect(table));
            let fences = self.dialect.fence_table();
            for resource in resources {
                statements.push(format!("delete from {fences} where resource = '{resource}'"));
            }
        }
        statements.push(format!("drop table if exists {table}"));
        statements.push(format!("drop table if exists {table}_fence"));
        for statement in statements {
            if let Err(error) = self.execute(&mut connection, statement).await {
                bail!("what is called {table} could not be removed: {error}");
            }
        }
        Ok(())
    }
}

struct SqlClient {
    connection: AnyConnection,
    dialect: Dialect,
    variant: Option<Variant>,
    table: String,
}

#[async_trait]
impl Client for SqlClient {
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

/// `None` is a refusal.
type Checked<T> = Result<Option<T>, sqlx::Error>;

impl SqlClient {
    async fn claim_and_read(&mut self, offer: &Offer) -> Checked<Seen> {
        self.begin().await?;
        if !self.claim(offer).await? {
            return Ok(None);
        }
        seen(&mut self.connection, &self.table, &offer.resource).await.map(Some)
    }

    /// The wrong ways have claimed when they read, if ever.
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
                self.connection.execute(sqlx::raw_sql(AssertSqlSafe(claim))).await?;
                Ok(true)
            }
            Some(Variant::Exists) => {
                let raise = format!(
                    "update {table}_fence set token = {token}
                     where resource = '{resource}' and token < {token}"
                );
                self.connection.execute(AssertSqlSafe(raise)).await?;
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
                self.connection.execute(AssertSqlSafe(raise)).await?;
                Ok(true)
            }
            Some(Variant::RowToken) => Ok(true),
        }
    }

    /// Writes, where the way of the variant lets it.
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
        };
        let write = format!(
            "update {table}
             set version = version + 1, token = {token}, increments = {increments}
             where resource = '{resource}' {condition}"
        );
        let version = match self.dialect {
            Dialect::Postgres | Dialect::Sqlite => {
                let write = AssertSqlSafe(format!("{write} returning version"));
                let rows = self.connection.fetch_all(write).await?;
                rows.first().map(|row| number(row, 0)).transpose()?
            }
            // It returns nothing of an update, but nobody else can change the row before the commit.
            Dialect::MariaDb => {
                let written = self.connection.execute(AssertSqlSafe(write)).await?;
                let version = seen(&mut self.connection, &self.table, resource).await?.state;
                (written.rows_affected() > 0).then_some(version)
            }
        };
        Ok(version.map(|version| Written { state: version, replaced: version - 1 }))
    }

    async fn highest_token(&mut self, resource: &ResourceName) -> Result<i64, sqlx::Error> {
        let table = &self.table;
        let select = format!("select token from {table}_fence where resource = '{resource}'");
        self.connection.fetch_one(AssertSqlSafe(select)).await?.try_get(0)
    }

    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.has_transactions() {
            self.connection.execute(self.dialect.begin()).await?;
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), sqlx::Error> {
        if !self.has_transactions() {
            return Ok(());
        }
        if let Some(statement) = self.dialect.before_commit().filter(|_| self.variant.is_none()) {
            self.connection.execute(statement).await?;
        }
        self.connection.execute("commit").await.map(|_| ())
    }

    /// Ends the transaction, and tells what became of it.
    async fn end<T>(&mut self, checked: Checked<T>) -> anyhow::Result<Attempt<T>> {
        let ended = match checked {
            Ok(Some(done)) => self.commit().await.map(|()| Some(done)),
            other => other,
        };
        if let Ok(Some(done)) = ended {
            return Ok(Attempt::Done(done));
        }
        if self.has_transactions() {
            // It fails where the database has rolled back by itself.
            let _ = self.connection.execute("rollback").await;
        }
        match ended {
            Ok(_) => Ok(Attempt::Refused),
            Err(error) if is_refusal(&error) => Ok(Attempt::Refused),
            Err(error) if self.dialect.is_contention(&error) => Ok(Attempt::Again),
            Err(error) => Err(error).context("the database failed"),
        }
    }

    /// On SQLite, whose transactions have one writer at a time, the wrong ways are wrong only without.
    fn has_transactions(&self) -> bool {
        self.dialect != Dialect::Sqlite || self.variant.is_none()
    }
}

async fn seen(
    connection: &mut AnyConnection,
    table: &str,
    resource: &ResourceName,
) -> Result<Seen, sqlx::Error> {
    let select = format!("select version, increments from {table} where resource = '{resource}'");
    let row = connection.fetch_one(AssertSqlSafe(select)).await?;
    Ok(Seen { state: number(&row, 0)?, increments: number(&row, 1)? })
}

fn number(row: &AnyRow, column: usize) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn is_refusal(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else {
        return false;
    };
    ["ZF001", "ZF002"].iter().any(|&refusal| {
        error.code().is_some_and(|code| code == refusal) || error.message().starts_with(refusal)
    })
}
