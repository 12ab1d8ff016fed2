//! PostgreSQL, MariaDB and SQLite under the hammer.

mod connection;
mod dialect;

use anyhow::{Context, anyhow, bail, ensure};
use async_trait::async_trait;
use fence::ResourceName;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor};

use self::{
    connection::{SqlConnection, read_row},
    dialect::Dialect,
};
use super::database::{Connection, Database, Variant};

/// A database with tables for this run only.
pub(super) struct Sql {
    url: String,
    dialect: Dialect,
    variant: Option<Variant>,
    /// The table of the data. The wrong ways use another one too, whose name ends in `_fence`.
    table: String,
}

impl Sql {
    pub(super) async fn open(
        url: &str,
        run: &str,
        variant: Option<Variant>,
    ) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        let dialect = Dialect::from_url(url);
        ensure!(
            (dialect, variant) != (Dialect::Sqlite, Some(Variant::Exists)),
            "on SQLite this way is not wrong, because one writer waits for the other"
        );
        let table = format!("fenced_hammer_{run}");
        let sql = Self { url: url.to_owned(), dialect, variant, table };
        let mut connection = sql.connection().await?;
        if variant.is_none() {
            // The last step of a run, tried first: it shows at once whether the fence is there.
            let unused = sql.table.parse::<ResourceName>()?;
            let remove = dialect.remove_fence(&unused);
            let removed = connection.execute(AssertSqlSafe(remove)).await;
            removed.map_err(|error| {
                let missing = ["does not exist", "doesn't exist", "no such table"];
                if missing.iter().any(|missing| error.to_string().contains(missing)) {
                    anyhow!("the fence is not installed in this database; see migrations/README.md")
                } else {
                    anyhow!(
                        "the hammer needs the rights of the role that installed the fence: {error}"
                    )
                }
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
impl Database for Sql {
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
            let created = self.execute(&mut connection, statement).await;
            created.context("can't create the hammer's tables")?;
        }
        Ok(())
    }

    async fn connect(&self, isolation: &str) -> anyhow::Result<Box<dyn Connection>> {
        let mut sql = self.connection().await?;
        self.execute(&mut sql, self.dialect.configure(isolation)).await?;
        let Self { dialect, variant, .. } = *self;
        Ok(Box::new(SqlConnection { sql, dialect, variant, table: self.table.clone() }))
    }

    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64> {
        let mut connection = self.connection().await?;
        Ok(read_row(&mut connection, &self.table, resource).await?.increments)
    }

    async fn clear(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let mut connection = self.connection().await?;
        let table = &self.table;
        let mut statements = Vec::new();
        if self.variant.is_none() {
            statements.extend(self.dialect.unprotect(table));
            statements.extend(resources.iter().map(|resource| self.dialect.remove_fence(resource)));
        }
        statements.push(format!("drop table if exists {table}"));
        statements.push(format!("drop table if exists {table}_fence"));
        for statement in statements {
            if let Err(error) = self.execute(&mut connection, statement).await {
                bail!("can't remove the tables and fences of {table}: {error}");
            }
        }
        Ok(())
    }
}
