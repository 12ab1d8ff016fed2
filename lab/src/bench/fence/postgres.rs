//! PostgreSQL with the fence: what pgbench runs in it, and statements that write many rows.

use fence::postgres;
use sqlx::{Connection, PgConnection};
use testbed::Postgres;

use super::{
    CLIENTS, Workload,
    bulk::{Bulk, Statements},
};
use crate::bench::{
    goal::Goal,
    load::{Load, RESOURCES, pgbench, psql},
    subject::Subject,
};

const WORKLOADS: [Workload; 8] = [
    ("an upsert, unfenced", 0, &[UPSERT]),
    ("an upsert with the rule in it", 0, &[UPSERT_WITH_RULE]),
    ("claim and upsert in one statement", 0, &[CLAIM_AND_UPSERT]),
    ("a transaction with an upsert, unfenced", 3, &[SELECT_CONSTANTS, UPSERT]),
    ("the same, and a second row written", 3, &[UPDATE_SECOND_ROW, UPSERT]),
    ("claim and upsert in a transaction", 3, &[CLAIM, UPSERT]),
    ("claim and upsert into a protected table", 3, &[CLAIM, UPSERT_PROTECTED]),
    ("present and upsert into a protected table", 3, &[PRESENT, UPSERT_PROTECTED]),
];

/// The number of a workload, how much of the unfenced rate must be left, and with slow commits.
const GOALS: [(usize, f64, Option<f64>); 5] =
    [(1, 0.85, None), (2, 0.7, Some(0.85)), (5, 0.7, None), (6, 0.6, None), (7, 0.6, Some(0.7))];

/// What the fence table is written for, before it is looked at how large it is.
pub(super) const MANY_WRITES: u32 = 1_000_000;
pub(super) const FEW_RESOURCES: u32 = 100;

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

/// Each workload, for so many seconds in all.
pub(super) fn rates(database: &Postgres, seconds: usize) -> Vec<Subject<'_, Load>> {
    let subject = |&(name, unfenced, statements): &Workload| {
        let run = move |seconds| async move {
            let script = script(statements, RESOURCES);
            pgbench(database, &script, CLIENTS, format!("--time={seconds}")).await
        };
        Subject::new(name, seconds, run).beside(unfenced)
    };
    WORKLOADS.iter().map(subject).collect()
}

pub(super) fn goals(fast: &[Subject<'_, Load>], slow: &[Subject<'_, Load>]) -> Vec<Goal> {
    let goals = GOALS.iter().flat_map(|&(number, bound, slow_bound)| {
        let unfenced = WORKLOADS[number].1;
        let of_unfenced = fast[number].ratio(&fast[unfenced]);
        let goal = Goal::at_least(fast[number].name(), bound, of_unfenced);
        let slow_goal = slow_bound.map(|bound| {
            let of_unfenced = slow[number].ratio(&slow[unfenced]);
            Goal::at_least("the same, slow commits", bound, of_unfenced)
        });
        [goal].into_iter().chain(slow_goal)
    });
    goals.collect()
}

pub(super) async fn bulk(database: &Postgres) -> anyhow::Result<Bulk> {
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
    };
    Bulk::new("PostgreSQL", &database.url(), statements).await
}

/// Empties the fence table, writes many times for few resources, and returns the table's pages.
pub(super) async fn pages_after_many_writes(database: &Postgres) -> anyhow::Result<u32> {
    let mut connection = PgConnection::connect(&database.url()).await?;
    let empty = "set fence.remove = 'on'; truncate fence.fence";
    sqlx::raw_sql(empty).execute(&mut connection).await?;
    let script = script(&[CLAIM_AND_UPSERT], FEW_RESOURCES);
    let length = format!("--transactions={}", MANY_WRITES / CLIENTS);
    pgbench(database, &script, CLIENTS, length).await?;
    let pages = "select pg_relation_size('fence.fence') / current_setting('block_size')::bigint";
    let pages: i64 = sqlx::query_scalar(pages).fetch_one(&mut connection).await?;
    Ok(pages.try_into()?)
}

/// The script for pgbench. Each run picks one of the resources at random.
fn script(statements: &[&str], resources: u32) -> String {
    let script = match statements {
        [statement] => (*statement).to_owned(),
        statements => format!("begin;\n{}\ncommit;", statements.join("\n")),
    };
    format!("\\set n random(0, {resources} - 1)\n{script}\n")
}
