//! One statement that writes many rows of one resource, under one claim.

use std::time::Instant;

use anyhow::ensure;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, error::DatabaseError};
use tokio::sync::Mutex;

use super::ROUNDS;
use crate::bench::subject::{Subject, Times};

const UPDATE: &str = "update bulk set value = value + 1";

/// What a database runs.
pub(super) struct Statements {
    /// How many rows to write into a table without protection.
    pub(super) bare_rows: u32,
    pub(super) protected_rows: u32,
    /// Creates the table `bulk`.
    pub(super) create_table: &'static str,
    /// Protects this table.
    pub(super) protect: Vec<String>,
    pub(super) claim: &'static str,
    /// Inserts so many rows.
    pub(super) insert: fn(u32) -> String,
}

/// A database, and what it runs.
pub(super) struct Bulk {
    pub(super) database: &'static str,
    pub(super) statements: Statements,
    connection: Mutex<AnyConnection>,
}

#[derive(Clone, Copy)]
enum Table {
    Bare,
    Protected,
}

#[derive(Clone, Copy)]
enum Write {
    Insert,
    Update,
}

impl Bulk {
    pub(super) async fn new(
        database: &'static str,
        url: &str,
        statements: Statements,
    ) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        let connection = Mutex::new(AnyConnection::connect(url).await?);
        Ok(Self { database, statements, connection })
    }

    /// The time of a row: of an insert into a bare table and into a protected one, and of an update.
    pub(super) fn subjects(&self) -> Vec<Subject<'_, Times>> {
        let subject = |name: &'static str, table, write| {
            Subject::new(name, ROUNDS, move |_| self.measure(table, write)).once_a_round()
        };
        vec![
            subject("insert", Table::Bare, Write::Insert),
            subject("insert, protected", Table::Protected, Write::Insert),
            subject("update", Table::Bare, Write::Update),
            subject("update, protected", Table::Protected, Write::Update),
        ]
    }

    /// Measures a statement on a new table, with the claim and the commit around it.
    async fn measure(&self, table: Table, write: Write) -> anyhow::Result<Times> {
        let Statements { bare_rows, protected_rows, create_table, protect, claim, insert } =
            &self.statements;
        let connection = &mut *self.connection.lock().await;
        execute(connection, "drop table if exists bulk").await?;
        execute(connection, create_table).await?;
        let (rows, claim) = match table {
            Table::Bare => (*bare_rows, None),
            Table::Protected => {
                for protect in protect {
                    execute(connection, protect).await?;
                }
                assert_protected(connection).await?;
                (*protected_rows, Some(*claim))
            }
        };
        let mut begun = Instant::now();
        transact(connection, claim, &insert(rows)).await?;
        if let Write::Update = write {
            begun = Instant::now();
            transact(connection, claim, UPDATE).await?;
        }
        Ok(Times { times: vec![begun.elapsed() / rows], work: Vec::new() })
    }
}

/// A table that isn't protected would have the best figures.
async fn assert_protected(connection: &mut AnyConnection) -> anyhow::Result<()> {
    let written = execute(connection, "insert into bulk values (0, 'bench/bulk', 1)").await;
    let rejection = written.as_ref().err().and_then(sqlx::Error::as_database_error);
    let code = rejection.and_then(DatabaseError::code);
    ensure!(code.as_deref() == Some("ZF004"), "the table `bulk` is not protected: {written:?}");
    Ok(())
}

async fn transact(
    connection: &mut AnyConnection,
    claim: Option<&str>,
    write: &str,
) -> Result<(), sqlx::Error> {
    for statement in ["begin"].into_iter().chain(claim).chain([write, "commit"]) {
        execute(connection, statement).await?;
    }
    Ok(())
}

async fn execute(connection: &mut AnyConnection, statement: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await.map(|_| ())
}
