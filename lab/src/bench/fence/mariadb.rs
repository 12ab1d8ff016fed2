//! MariaDB with the fence: clients that repeat transactions, and statements that write many rows.

use std::time::{Duration, Instant};

use anyhow::Context;
use fence::mariadb;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use testbed::MariaDb;
use tokio::task::JoinSet;

use super::{
    CLIENTS,
    bulk::{Bulk, Statements},
    rates::Rates,
    workload::Workload,
};
use crate::bench::load::RESOURCES;

const WORKLOADS: [Workload; 4] = [
    Workload::Transaction,
    Workload::TransactionOfTwoRows,
    Workload::ClaimThenUpsert,
    Workload::ClaimThenUpsertProtected,
];

const TABLES: [&str; 3] = ["unfenced", "second", "protected"];

/// InnoDB skips an update that changes nothing, so these change the value.
const UPSERT: &str = "insert into unfenced values (?, 1) on duplicate key update value = value + 1";
const UPSERT_PROTECTED: &str =
    "insert into protected values (?, 1) on duplicate key update value = value + 1";

const CLAIM: &str = "call fence.claim(?, 34, 'me')";
/// Costs the round trip of a claim, and nothing else.
const SELECT_CONSTANTS: &str = "select ?, 34, 'me'";
/// The least that a claim must do if the fence has its own row: write that row.
const UPDATE_SECOND_ROW: &str = "update second set value = value + 1 where resource = ?";

const BULK_BARE_ROWS: u32 = 100_000;
/// Each check takes 30 µs.
const BULK_PROTECTED_ROWS: u32 = 10_000;
const BULK_TABLE: &str = "
    create table bulk (
        id bigint primary key, resource varchar(40) not null, value bigint not null
    )";

pub(super) async fn start() -> anyhow::Result<MariaDb> {
    let database = MariaDb::start().await?;
    let mut connection = MySqlConnection::connect(&database.url()).await?;
    mariadb::install(&mut connection).await?;
    for table in TABLES {
        let create = format!(
            "create table {table} (resource varchar(40) primary key, value bigint not null)"
        );
        execute(&mut connection, create).await?;
        let last = RESOURCES - 1;
        let fill =
            format!("insert into {table} select concat('bench/', seq), 1 from seq_0_to_{last}");
        execute(&mut connection, fill).await?;
    }
    for protect in protection("test.protected", &mut connection).await? {
        execute(&mut connection, protect).await?;
    }
    Ok(database)
}

pub(super) async fn measure_rates(database: &MariaDb, seconds: u32) -> anyhow::Result<Rates> {
    Rates::measure(&WORKLOADS, seconds, async |workload, seconds| {
        run(database, statements(workload), Duration::from_secs(seconds.into()))
            .await
            .with_context(|| format!("MariaDB: {}", workload.subject()))
    })
    .await
}

pub(super) async fn measure_bulk(database: &MariaDb) -> anyhow::Result<Bulk> {
    let mut connection = MySqlConnection::connect(&database.url()).await?;
    execute(&mut connection, BULK_TABLE.to_owned()).await?;
    let statements = Statements {
        bare_rows: BULK_BARE_ROWS,
        protected_rows: BULK_PROTECTED_ROWS,
        create_table: BULK_TABLE,
        protect: protection("test.bulk", &mut connection).await?,
        claim: "call fence.claim('bench/bulk', 34, 'me')",
        insert: |rows| format!("insert into bulk select seq, 'bench/bulk', 1 from seq_1_to_{rows}"),
        update: "update bulk set value = value + 1",
    };
    Bulk::measure(&mut connection, &statements).await
}

/// Both statements of a transaction. Each takes the resource.
fn statements(workload: Workload) -> [&'static str; 2] {
    match workload {
        Workload::Transaction => [SELECT_CONSTANTS, UPSERT],
        Workload::TransactionOfTwoRows => [UPDATE_SECOND_ROW, UPSERT],
        Workload::ClaimThenUpsert => [CLAIM, UPSERT],
        Workload::ClaimThenUpsertProtected => [CLAIM, UPSERT_PROTECTED],
        other => unreachable!("{other:?} is not in WORKLOADS"),
    }
}

/// Runs a transaction with all clients again and again, and returns the transactions per second.
async fn run(
    database: &MariaDb,
    statements: [&'static str; 2],
    length: Duration,
) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(MySqlConnection::connect(&database.url()).await?);
    }
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for connection in connections {
        clients.spawn(repeat(connection, statements, begun + length));
    }
    let mut transactions = 0;
    while let Some(client) = clients.join_next().await {
        transactions += client??;
    }
    Ok(f64::from(transactions) / begun.elapsed().as_secs_f64())
}

/// Runs a transaction until a time, each on one of the resources at random. Returns how often.
async fn repeat(
    mut connection: MySqlConnection,
    statements: [&'static str; 2],
    until: Instant,
) -> Result<u32, sqlx::Error> {
    let mut transactions = 0;
    while Instant::now() < until {
        let resource = format!("bench/{}", rand::random_range(0..RESOURCES));
        let mut transaction = connection.begin().await?;
        for statement in statements {
            sqlx::query(statement).bind(&resource).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        transactions += 1;
    }
    Ok(transactions)
}

/// The statements that protect a table by its column `resource`.
async fn protection(
    table: &str,
    connection: &mut MySqlConnection,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("call fence.protect_sql(?, 'resource')")
        .bind(table)
        .fetch_all(connection)
        .await
}

async fn execute(connection: &mut MySqlConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map(|_| ())
}
