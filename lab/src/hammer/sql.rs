//! PostgreSQL, MariaDB and SQLite under the hammer.

use std::time::Duration;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use fence::ResourceName;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor, Row, any::AnyRow};
use tokio::time::sleep;

use super::{Anvil, Attempt, Client, Offer, Seen, Variant, Written};

/// As the functions answer with nothing, which is of no type that the driver for any database knows.
const PROTECT_POSTGRES: &str =
    "do $$ begin perform fence.protect('fenced_hammer', 'resource'); end $$";
const UNPROTECT_POSTGRES: &str = "do $$ begin perform fence.unprotect('fenced_hammer'); end $$";

/// A database, by what its SQL has of its own. All statements are made of numbers and of names that
/// are the hammer's own, so that they may be put together as text.
pub(super) struct Sql {
    url: String,
    dialect: Dialect,
    variant: Option<Variant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Postgres,
    MariaDb,
    Sqlite,
}

impl Sql {
    pub(super) async fn open(url: &str, variant: Option<Variant>) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        let dialect = match url.split(':').next() {
            Some("sqlite") => Dialect::Sqlite,
            Some("mariadb" | "mysql") => Dialect::MariaDb,
            _ => Dialect::Postgres,
        };
        ensure!(
            (dialect, variant) != (Dialect::Sqlite, Some(Variant::Exists)),
            "on SQLite, where one writer waits for the other, this way is not wrong"
        );
        let sql = Self { url: url.to_owned(), dialect, variant };
        if variant.is_none() {
            let mut connection = sql.connection().await?;
            let installed = connection.execute(dialect.touch_the_fence()).await;
            installed
                .context("the fence is not in this database; migrations/README.md tells how")?;
        }
        Ok(sql)
    }

    async fn connection(&self) -> anyhow::Result<AnyConnection> {
        AnyConnection::connect(&self.url).await.context("can't connect to the database")
    }
}

impl Dialect {
    fn touch_the_fence(self) -> &'static str {
        match self {
            Self::Postgres => "select from fence.status",
            Self::MariaDb => "select fence_transaction()",
            Self::Sqlite => "select 1 from fence_require where false",
        }
    }

    fn protect(self) -> &'static str {
        match self {
            Self::Postgres => PROTECT_POSTGRES,
            Self::MariaDb => {
                "create trigger fenced_hammer_update after update on fenced_hammer
                 for each row call fence_require_both(old.resource, new.resource)"
            }
            Self::Sqlite => {
                "create trigger fenced_hammer_update after update on fenced_hammer begin
                     insert into fence_require values (old.resource), (new.resource);
                 end"
            }
        }
    }

    fn begin(self) -> &'static str {
        match self {
            Self::Postgres | Self::MariaDb => "begin",
            Self::Sqlite => "begin immediate",
        }
    }

    fn at(self, isolation: &str) -> String {
        match self {
            Self::Postgres => {
                format!("set session characteristics as transaction isolation level {isolation}")
            }
            Self::MariaDb => format!("set session transaction isolation level {isolation}"),
            Self::Sqlite => "pragma recursive_triggers = on".to_owned(),
        }
    }

    fn fence_table(self) -> &'static str {
        match self {
            Self::Postgres => "fence.fence",
            Self::MariaDb | Self::Sqlite => "fence",
        }
    }

    fn claim(self, Offer { resource, fence }: &Offer) -> String {
        let (token, holder) = (fence.token, fence.holder.as_str());
        match self {
            Self::Postgres => {
                format!(
                    "do $$ begin perform fence.claim('{resource}', {token}, '{holder}'); end $$"
                )
            }
            Self::MariaDb => format!("call fence_claim('{resource}', {token}, '{holder}')"),
            Self::Sqlite => {
                format!("insert into fence_claim values ('{resource}', {token}, '{holder}')")
            }
        }
    }
}

#[async_trait]
impl Anvil for Sql {
    fn isolation_levels(&self) -> &'static [&'static str] {
        match self.dialect {
            Dialect::Postgres | Dialect::MariaDb => {
                &["read committed", "repeatable read", "serializable"]
            }
            Dialect::Sqlite => &["serializable"],
        }
    }

    async fn prepare(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let mut connection = self.connection().await?;
        let tables = [
            "create table fenced_hammer (
                resource varchar(64) not null primary key, version bigint not null,
                token bigint not null, increments bigint not null
            )",
            "create table fenced_hammer_fence (
                resource varchar(64) not null primary key, token bigint not null
            )",
        ];
        for table in tables {
            connection.execute(table).await.context(
                "can't make the hammer's tables: if another run has left fenced_hammer and \
                 fenced_hammer_fence behind, drop them",
            )?;
        }
        for resource in resources {
            for row in [
                format!("insert into fenced_hammer values ('{resource}', 0, 0, 0)"),
                format!("insert into fenced_hammer_fence values ('{resource}', 0)"),
            ] {
                connection.execute(AssertSqlSafe(row)).await?;
            }
        }
        if self.variant.is_none() {
            connection.execute(sqlx::raw_sql(self.dialect.protect())).await?;
        }
        Ok(())
    }

    async fn connect(&self, isolation: &str) -> anyhow::Result<Box<dyn Client>> {
        let mut connection = self.connection().await?;
        connection.execute(AssertSqlSafe(self.dialect.at(isolation))).await?;
        Ok(Box::new(SqlClient { connection, dialect: self.dialect, variant: self.variant }))
    }

    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64> {
        let mut connection = self.connection().await?;
        Ok(seen(&mut connection, resource).await?.increments)
    }

    async fn clear(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let mut connection = self.connection().await?;
        if self.dialect == Dialect::Postgres && self.variant.is_none() {
            connection.execute(sqlx::raw_sql(UNPROTECT_POSTGRES)).await?;
        }
        for table in ["fenced_hammer", "fenced_hammer_fence"] {
            connection.execute(AssertSqlSafe(format!("drop table {table}"))).await?;
        }
        if self.variant.is_none() {
            let fences = self.dialect.fence_table();
            for resource in resources {
                let remove = format!("delete from {fences} where resource = '{resource}'");
                connection.execute(AssertSqlSafe(remove)).await?;
            }
        }
        Ok(())
    }
}

struct SqlClient {
    connection: AnyConnection,
    dialect: Dialect,
    variant: Option<Variant>,
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
        seen(&mut self.connection, &offer.resource).await.map(Some)
    }

    async fn claim_and_write(&mut self, offer: &Offer, increments: u64) -> Checked<Written> {
        self.begin().await?;
        if self.variant.is_none() {
            self.claim(offer).await?;
        }
        self.checked_write(offer, increments).await
    }

    async fn claim(&mut self, Offer { resource, fence }: &Offer) -> Result<bool, sqlx::Error> {
        let token = fence.token;
        match self.variant {
            None => {
                let claim =
                    self.dialect.claim(&Offer { resource: resource.clone(), fence: fence.clone() });
                self.connection.execute(sqlx::raw_sql(AssertSqlSafe(claim))).await?;
                Ok(true)
            }
            Some(Variant::Exists) => {
                let raise = format!(
                    "update fenced_hammer_fence set token = {token}
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
                    "update fenced_hammer_fence set token = {token} where resource = '{resource}'"
                );
                self.connection.execute(AssertSqlSafe(raise)).await?;
                Ok(true)
            }
            Some(Variant::RowToken) => Ok(true),
        }
    }

    /// Writes, where the way of the variant lets it.
    async fn checked_write(&mut self, offer: &Offer, increments: u64) -> Checked<Written> {
        let Offer { resource, fence } = offer;
        let token = fence.token;
        let passes = match self.variant {
            None => String::new(),
            Some(Variant::Exists) => format!(
                "and exists (
                    select 1 from fenced_hammer_fence f
                    where f.resource = '{resource}' and f.token = {token}
                )"
            ),
            Some(Variant::SelectThenUpdate) => {
                if self.highest_token(resource).await? > token.as_i64() {
                    return Ok(None);
                }
                String::new()
            }
            Some(Variant::RowToken) => format!("and token <= {token}"),
        };
        let write = format!(
            "update fenced_hammer
             set version = version + 1, token = {token}, increments = {increments}
             where resource = '{resource}' {passes}"
        );
        let version = match self.dialect {
            Dialect::Postgres => self.returned(format!("{write} returning version")).await?,
            Dialect::Sqlite if self.variant.is_some() => {
                self.returned(format!("{write} returning version")).await?
            }
            Dialect::Sqlite => {
                let (holder, token) = (fence.holder.as_str(), token);
                let present = format!(
                    "insert into fence_presented (token, holder) values ({token}, '{holder}')"
                );
                self.connection.execute(AssertSqlSafe(present)).await?;
                let version = self.returned(format!("{write} returning version")).await?;
                self.connection.execute("delete from fence_presented").await?;
                version
            }
            // It returns nothing of an update, but nobody else can change the row before the commit.
            Dialect::MariaDb => {
                let written = self.connection.execute(AssertSqlSafe(write)).await?;
                let version = seen(&mut self.connection, resource).await?.state;
                (written.rows_affected() > 0).then_some(version)
            }
        };
        Ok(version.map(|version| Written { state: version, replaced: version - 1 }))
    }

    async fn returned(&mut self, statement: String) -> Result<Option<u64>, sqlx::Error> {
        let rows = self.connection.fetch_all(AssertSqlSafe(statement)).await?;
        rows.first().map(|row| number(row, 0)).transpose()
    }

    async fn highest_token(&mut self, resource: &ResourceName) -> Result<i64, sqlx::Error> {
        let select = format!("select token from fenced_hammer_fence where resource = '{resource}'");
        self.connection.fetch_one(AssertSqlSafe(select)).await?.try_get(0)
    }

    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.has_transactions() {
            self.connection.execute(self.dialect.begin()).await?;
        }
        Ok(())
    }

    /// Ends the transaction, and tells what became of it.
    async fn end<T>(&mut self, result: Checked<T>) -> anyhow::Result<Attempt<T>> {
        let committed = match result {
            Ok(Some(done)) if self.has_transactions() => {
                self.connection.execute("commit").await.map(|_| Some(done))
            }
            other => other,
        };
        let error = match committed {
            Ok(Some(done)) => return Ok(Attempt::Done(done)),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if self.has_transactions() {
            // It fails where the database has rolled back by itself.
            let _ = self.connection.execute("rollback").await;
        }
        match error {
            None => Ok(Attempt::Refused),
            Some(error) if is_refusal(&error) => Ok(Attempt::Refused),
            Some(error) if is_to_be_tried_again(&error) => Ok(Attempt::Again),
            Some(error) => Err(error).context("the database failed"),
        }
    }

    /// On SQLite, whose transactions have one writer at a time, the wrong ways are wrong only without.
    fn has_transactions(&self) -> bool {
        self.dialect != Dialect::Sqlite || self.variant.is_none()
    }
}

async fn seen(
    connection: &mut AnyConnection,
    resource: &ResourceName,
) -> Result<Seen, sqlx::Error> {
    let select =
        format!("select version, increments from fenced_hammer where resource = '{resource}'");
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

/// A deadlock, a snapshot that is too old, a lock that was waited for too long.
fn is_to_be_tried_again(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // SQLSTATEs, and SQLite's BUSY.
    code.is_some_and(|code| ["40001", "40P01", "5"].contains(&&*code))
}
