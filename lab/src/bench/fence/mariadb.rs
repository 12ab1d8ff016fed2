//! MariaDB with the fence: clients that repeat transactions, and statements that write many rows.

use fence::mariadb;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use testbed::MariaDb;

use super::{
    CLIENTS, Workload,
    bulk::{Bulk, Statements},
};
use crate::bench::{
    load::{Load, RESOURCES, repeat},
    subject::Subject,
};

const WORKLOADS: [Workload; 4] = [
    ("a transaction with an upsert, unfenced", 0, &[SELECT_CONSTANTS, UPSERT]),
    ("the same, and a second row written", 0, &[UPDATE_SECOND_ROW, UPSERT]),
    ("claim and upsert in a transaction", 0, &[CLAIM, UPSERT]),
    ("claim and upsert into a protected table", 0, &[CLAIM, UPSERT_PROTECTED]),
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

/// Each workload, for so many seconds in all.
pub(super) fn rates(database: &MariaDb, seconds: usize) -> Vec<Subject<'_, Load>> {
    let subject = |&(name, unfenced, statements): &Workload| {
        Subject::new(name, seconds, move |seconds| run(database, statements, seconds))
            .beside(unfenced)
    };
    WORKLOADS.iter().map(subject).collect()
}

/// Lets all clients repeat a transaction, each time on one of the resources at random.
async fn run(
    database: &MariaDb,
    statements: &'static [&'static str],
    seconds: usize,
) -> anyhow::Result<Load> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut connection = MySqlConnection::connect(&database.url()).await?;
        clients.push(async move || {
            let resource = format!("bench/{}", rand::random_range(0..RESOURCES));
            let mut transaction = connection.begin().await?;
            for &statement in statements {
                sqlx::query(statement).bind(&resource).execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            anyhow::Ok(())
        });
    }
    repeat(clients, seconds).await
}

pub(super) async fn bulk(database: &MariaDb) -> anyhow::Result<Bulk> {
    let mut connection = MySqlConnection::connect(&database.url()).await?;
    execute(&mut connection, BULK_TABLE.to_owned()).await?;
    let statements = Statements {
        bare_rows: BULK_BARE_ROWS,
        protected_rows: BULK_PROTECTED_ROWS,
        create_table: BULK_TABLE,
        protect: protection("test.bulk", &mut connection).await?,
        claim: "call fence.claim('bench/bulk', 34, 'me')",
        insert: |rows| format!("insert into bulk select seq, 'bench/bulk', 1 from seq_1_to_{rows}"),
    };
    Bulk::new("MariaDB", &database.url(), statements).await
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
