//! PostgreSQL with the fence: what pgbench runs in it, and statements that write many rows.

use fence::postgres;
use sqlx::{Connection, PgConnection};
use testbed::Postgres;

use super::{
    CLIENTS,
    bulk::{Bulk, Statements},
    rates::Rates,
    workload::Workload,
};
use crate::bench::load::{Length, RESOURCES, pgbench, psql};

const WORKLOADS: [Workload; 8] = [
    Workload::Upsert,
    Workload::UpsertWithRule,
    Workload::ClaimAndUpsert,
    Workload::Transaction,
    Workload::TransactionOfTwoRows,
    Workload::ClaimThenUpsert,
    Workload::ClaimThenUpsertProtected,
    Workload::PresentThenUpsertProtected,
];

const TABLES: &str = "
    create table unfenced (resource text primary key, value bigint not null) with (fillfactor = 70);
    create table ruled (
        resource text primary key, value bigint not null,
        token bigint not null, holder text not null
    ) with (fillfactor = 70);
    create table second (like unfenced including all) with (fillfactor = 50);
    create table protected (like unfenced including all) with (fillfactor = 70);
    select fence.protect('protected', 'resource');";

const UPSERT: &str = "
    insert into unfenced values ('bench/' || :n, 1)
    on conflict (resource) do update set value = excluded.value;";

const UPSERT_WITH_RULE: &str = "
    insert into ruled as r values ('bench/' || :n, 1, 34, 'me')
    on conflict (resource) do update
    set value = excluded.value, token = excluded.token, holder = excluded.holder
    where excluded.token > r.token or (excluded.token = r.token and excluded.holder = r.holder);";

const CLAIM_AND_UPSERT: &str = "
    with claimed as materialized (select fence.claim('bench/' || :n, 34, 'me'))
    insert into unfenced select 'bench/' || :n, 1 from claimed
    on conflict (resource) do update set value = excluded.value;";

const UPSERT_PROTECTED: &str = "
    insert into protected values ('bench/' || :n, 1)
    on conflict (resource) do update set value = excluded.value;";

const CLAIM: &str = "select fence.claim('bench/' || :n, 34, 'me');";
const PRESENT: &str = "select fence.present(34, 'me');";
/// Costs the round trip of a claim, and nothing else.
const SELECT_CONSTANTS: &str = "select 34, 'me';";
/// The least that a claim must do if the fence has its own row: write that row.
const UPDATE_SECOND_ROW: &str = "update second set value = 34 where resource = 'bench/' || :n;";

const BULK_ROWS: u32 = 100_000;
/// Vacuum and analyze in the background would come to one table of a pair only.
const BULK_TABLE: &str = "
    create table bulk (id bigint primary key, resource text not null, value bigint not null)
    with (autovacuum_enabled = false)";

pub(super) async fn start(settings: &[&str]) -> anyhow::Result<Postgres> {
    let database = Postgres::start_with(settings).await?;
    let mut connection = PgConnection::connect(&database.url()).await?;
    postgres::install(&mut connection).await?;
    psql(&database, TABLES).await?;
    sqlx::query("insert into second select 'bench/' || n, 1 from generate_series(0, $1) as n")
        .bind(i64::from(RESOURCES) - 1)
        .execute(&mut connection)
        .await?;
    Ok(database)
}

pub(super) async fn measure_rates(database: &Postgres, seconds: u32) -> anyhow::Result<Rates> {
    Rates::measure(&WORKLOADS, seconds, async |workload, seconds| {
        pgbench(database, &script(workload, RESOURCES), CLIENTS, Length::Seconds(seconds)).await
    })
    .await
}

pub(super) async fn measure_bulk(database: &Postgres) -> anyhow::Result<Bulk> {
    let statements = Statements {
        bare_rows: BULK_ROWS,
        protected_rows: BULK_ROWS,
        create_table: BULK_TABLE,
        protect: vec!["select fence.protect('bulk', 'resource')".to_owned()],
        claim: "select fence.claim('bench/bulk', 34, 'me')",
        insert: |rows| {
            format!(
                "insert into bulk select n, 'bench/bulk', 1 from generate_series(1, {rows}) as n"
            )
        },
        update: "update bulk set value = value + 1",
    };
    let mut connection = PgConnection::connect(&database.url()).await?;
    Bulk::measure(&mut connection, &statements).await
}

/// The script for pgbench. Each run picks one of the resources at random.
pub(super) fn script(workload: Workload, resources: u32) -> String {
    let transaction = |first: &str, upsert: &str| format!("begin;\n{first}\n{upsert}\ncommit;");
    let statements = match workload {
        Workload::Upsert => UPSERT.to_owned(),
        Workload::UpsertWithRule => UPSERT_WITH_RULE.to_owned(),
        Workload::ClaimAndUpsert => CLAIM_AND_UPSERT.to_owned(),
        Workload::Transaction => transaction(SELECT_CONSTANTS, UPSERT),
        Workload::TransactionOfTwoRows => transaction(UPDATE_SECOND_ROW, UPSERT),
        Workload::ClaimThenUpsert => transaction(CLAIM, UPSERT),
        Workload::ClaimThenUpsertProtected => transaction(CLAIM, UPSERT_PROTECTED),
        Workload::PresentThenUpsertProtected => transaction(PRESENT, UPSERT_PROTECTED),
    };
    format!("\\set n random(0, {resources} - 1)\n{statements}\n")
}
