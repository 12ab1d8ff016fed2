//! One statement that writes many rows of one resource, under one claim.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sqlx::{AssertSqlSafe, Executor, error::DatabaseError};

use super::ROUNDS;
use crate::bench::series::{Part, Series};

/// What a database runs.
#[derive(Debug)]
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
    pub(super) update: &'static str,
}

/// What two statements cost, with the claim and the commit around them.
#[derive(Debug)]
pub(super) struct Bulk {
    pub(super) bare_rows: u32,
    pub(super) protected_rows: u32,
    pub(super) insert: Pair,
    pub(super) update: Pair,
}

/// The times of one statement, for each row. A round measures both tables, one after the other.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) bare: Series,
    pub(super) protected: Series,
}

#[derive(Clone, Copy, Debug)]
enum Table {
    Bare,
    Protected,
}

impl Bulk {
    pub(super) async fn measure<C>(
        connection: &mut C,
        statements: &Statements,
    ) -> anyhow::Result<Self>
    where
        for<'c> &'c mut C: Executor<'c>,
    {
        let Statements { bare_rows, protected_rows, .. } = *statements;
        let (insert, update) = (Pair::new("insert"), Pair::new("update"));
        let mut bulk = Self { bare_rows, protected_rows, insert, update };
        let mut tables = [Table::Bare, Table::Protected];
        for _ in 0..ROUNDS {
            for table in tables {
                bulk.measure_table(connection, statements, table).await?;
            }
            // The work that a statement leaves to the background slows down the next one.
            tables.reverse();
        }
        Ok(bulk)
    }

    async fn measure_table<C>(
        &mut self,
        connection: &mut C,
        statements: &Statements,
        table: Table,
    ) -> anyhow::Result<()>
    where
        for<'c> &'c mut C: Executor<'c>,
    {
        execute(connection, "drop table if exists bulk").await?;
        execute(connection, statements.create_table).await?;
        let (rows, claim) = match table {
            Table::Bare => (self.bare_rows, None),
            Table::Protected => {
                for protect in &statements.protect {
                    execute(connection, protect).await?;
                }
                assert_protected(connection).await?;
                (self.protected_rows, Some(statements.claim))
            }
        };
        let insert = (statements.insert)(rows);
        for (pair, write) in [(&mut self.insert, &*insert), (&mut self.update, statements.update)] {
            let time = time_transaction(connection, claim, write).await?;
            pair.series(table).add(Part { times: vec![time / rows], ..Part::default() });
        }
        Ok(())
    }
}

impl Pair {
    fn new(subject: &'static str) -> Self {
        Self { bare: Series::new(subject), protected: Series::new(subject) }
    }

    /// The ratio of both times in the same round, in the median of all rounds.
    pub(super) fn of_bare(&self) -> f64 {
        self.protected.ratio_in_parts(&self.bare)
    }

    fn series(&mut self, table: Table) -> &mut Series {
        match table {
            Table::Bare => &mut self.bare,
            Table::Protected => &mut self.protected,
        }
    }
}

/// A table that isn't protected would have the best figures.
async fn assert_protected<C>(connection: &mut C) -> anyhow::Result<()>
where
    for<'c> &'c mut C: Executor<'c>,
{
    let written = execute(connection, "insert into bulk values (0, 'bench/bulk', 1)").await;
    let rejection = written.as_ref().err().and_then(sqlx::Error::as_database_error);
    let code = rejection.and_then(DatabaseError::code);
    ensure!(code.as_deref() == Some("ZF004"), "the table `bulk` is not protected: {written:?}");
    Ok(())
}

async fn time_transaction<C>(
    connection: &mut C,
    claim: Option<&str>,
    write: &str,
) -> Result<Duration, sqlx::Error>
where
    for<'c> &'c mut C: Executor<'c>,
{
    let begun = Instant::now();
    for statement in ["begin"].into_iter().chain(claim).chain([write, "commit"]) {
        execute(connection, statement).await?;
    }
    Ok(begun.elapsed())
}

async fn execute<C>(connection: &mut C, statement: &str) -> Result<(), sqlx::Error>
where
    for<'c> &'c mut C: Executor<'c>,
{
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await.map(|_| ())
}
