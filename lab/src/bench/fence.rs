//! `lab bench fence`.

use std::process::ExitCode;

use clap::Args;
use fence::postgres;
use serde::Serialize;
use sqlx::{Connection, PgConnection};

use super::{
    load::{Length, RESOURCES, WARM_UP_SECONDS, pgbench, psql},
    target::Target,
};
use testbed::Postgres;

const CLIENTS: u32 = 16;
/// At least so much of an unfenced upsert is one statement that checks the token too meant to be.
const ONE_STATEMENT: f64 = 0.85;
/// At least so much of the same unfenced transaction is one through a protected table meant to be.
const PROTECTED: f64 = 0.7;
/// How many writes the fence table has to take.
const BLOAT_WRITES: u32 = 1_000_000;
/// Over how many resources.
const BLOAT_RESOURCES: u32 = 100;
/// At most so many pages is it meant to have then.
const BLOAT_PAGES: i64 = 300;

/// The figures are measured in rounds, one of each after the other, as a machine is now faster and now
/// slower.
const ROUNDS: u32 = 5;
/// A commit that takes 2 ms at least, as on many a disk.
const SLOW_COMMITS: [&str; 2] = ["commit_delay=2000", "commit_siblings=0"];

const TABLES: &str = "
    create table unfenced (resource text primary key, value bigint not null) with (fillfactor = 70);
    create table ruled (
        resource text primary key, value bigint not null, token bigint not null, holder text not null
    ) with (fillfactor = 70);
    create table second (like unfenced including all) with (fillfactor = 50);
    create table protected (like unfenced including all) with (fillfactor = 70);
    select fence.protect('protected', 'resource');";

const UPSERT: &str = "
    insert into unfenced values ('bench/' || :n, 1)
    on conflict (resource) do update set value = excluded.value;";

const RULED: &str = "
    insert into ruled as r values ('bench/' || :n, 1, 34, 'me')
    on conflict (resource) do update
    set value = excluded.value, token = excluded.token, holder = excluded.holder
    where excluded.token > r.token or (excluded.token = r.token and excluded.holder = r.holder);";

const CLAIM_AND_UPSERT: &str = "
    with claimed as materialized (select fence.claim('bench/' || :n, 34, 'me'))
    insert into unfenced select 'bench/' || :n, 1 from claimed
    on conflict (resource) do update set value = excluded.value;";

const CLAIM: &str = "select fence.claim('bench/' || :n, 34, 'me');";
const PRESENT: &str = "select fence.present(34, 'me');";
/// Takes a round trip, as what it stands for does.
const NOTHING: &str = "select 34, 'me';";
/// What a claim can't do without, if the fence has a row of its own: to write that row.
const SECOND_ROW: &str = "update second set value = 34 where resource = 'bench/' || :n;";

const UPSERT_PROTECTED: &str = "
    insert into protected values ('bench/' || :n, 1)
    on conflict (resource) do update set value = excluded.value;";

#[derive(Args, Debug)]
pub struct FenceBench {
    /// How long to measure each figure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..), value_name = "SECONDS")]
    seconds: u32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figure {
    subject: &'static str,
    /// With commits as fast as the machine has them.
    per_second: f64,
    /// Of the unfenced figure that it is to be compared with.
    of_unfenced: f64,
    /// The same where a commit takes 2 ms.
    per_second_with_slow_commits: f64,
    of_unfenced_with_slow_commits: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    clients: u32,
    seconds: u32,
    figures: Vec<Figure>,
    targets: Vec<Target>,
    bloat: Bloat,
}

/// The fence table after a great many writes on few resources.
#[derive(Debug, Serialize)]
struct Bloat {
    writes: u32,
    resources: u32,
    pages: i64,
    at_most: i64,
    reached: bool,
}

/// Transactions per second, of what is measured.
#[derive(Clone, Copy)]
struct Rates {
    upsert: f64,
    ruled: f64,
    claim_and_upsert: f64,
    transaction: f64,
    second_row: f64,
    claim: f64,
    claim_protected: f64,
    protected: f64,
}

impl FenceBench {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let slow = {
            let database = with_tables(&SLOW_COMMITS).await?;
            self.measure(&database)?
        };
        let database = with_tables(&[]).await?;
        let fast = self.measure(&database)?;
        let pages = pages_after_many_writes(&database).await?;

        let figure = |subject, of: fn(Rates) -> f64, unfenced: fn(Rates) -> f64| Figure {
            subject,
            per_second: of(fast),
            of_unfenced: of(fast) / unfenced(fast),
            per_second_with_slow_commits: of(slow),
            of_unfenced_with_slow_commits: of(slow) / unfenced(slow),
        };
        let upsert: fn(Rates) -> f64 = |rates| rates.upsert;
        let transaction: fn(Rates) -> f64 = |rates| rates.transaction;
        let one_statement = |rates: Rates| rates.claim_and_upsert / rates.upsert;
        let through = |rates: Rates| rates.protected / rates.transaction;
        let report = Report {
            bench: "fence",
            clients: CLIENTS,
            seconds: self.seconds,
            figures: vec![
                figure("an upsert, unfenced", upsert, upsert),
                figure("an upsert with the rule in it", |rates| rates.ruled, upsert),
                figure("claim and upsert in one statement", |rates| rates.claim_and_upsert, upsert),
                figure("a transaction with an upsert, unfenced", transaction, transaction),
                figure("the same, and a second row written", |rates| rates.second_row, transaction),
                figure("claim and upsert in a transaction", |rates| rates.claim, transaction),
                figure(
                    "claim and upsert into a protected table",
                    |rates| rates.claim_protected,
                    transaction,
                ),
                figure(
                    "present and upsert into a protected table",
                    |rates| rates.protected,
                    transaction,
                ),
            ],
            targets: vec![
                Target::at_least("the rule in an upsert", ONE_STATEMENT, fast.ruled / fast.upsert),
                Target::at_least(
                    "claim and upsert in one statement",
                    ONE_STATEMENT,
                    one_statement(fast),
                ),
                Target::at_least("the same, slow commits", ONE_STATEMENT, one_statement(slow)),
                Target::at_least("through a protected table", PROTECTED, through(fast)),
                Target::at_least("the same, slow commits", PROTECTED, through(slow)),
            ],
            bloat: Bloat {
                writes: BLOAT_WRITES,
                resources: BLOAT_RESOURCES,
                pages,
                at_most: BLOAT_PAGES,
                reached: pages <= BLOAT_PAGES,
            },
        };
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", report.table());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self, database: &Postgres) -> anyhow::Result<Rates> {
        let script = |statements: &[&str]| script_over(RESOURCES, statements);
        let transaction =
            |first: &str, write: &str| script(&["begin;\n", first, "\n", write, "\ncommit;"]);
        let scripts = [
            script(&[UPSERT]),
            script(&[RULED]),
            script(&[CLAIM_AND_UPSERT]),
            transaction(NOTHING, UPSERT),
            transaction(SECOND_ROW, UPSERT),
            transaction(CLAIM, UPSERT),
            transaction(CLAIM, UPSERT_PROTECTED),
            transaction(PRESENT, UPSERT_PROTECTED),
        ];
        for script in &scripts {
            pgbench(database, script, CLIENTS, Length::Seconds(WARM_UP_SECONDS))?;
        }
        let mut sums = [0.0; 8];
        for _ in 0..ROUNDS {
            for (sum, script) in sums.iter_mut().zip(&scripts) {
                let length = Length::Seconds(self.seconds.div_ceil(ROUNDS));
                *sum += pgbench(database, script, CLIENTS, length)?;
            }
        }
        let [
            upsert,
            ruled,
            claim_and_upsert,
            transaction,
            second_row,
            claim,
            claim_protected,
            protected,
        ] = sums.map(|sum| sum / f64::from(ROUNDS));
        Ok(Rates {
            upsert,
            ruled,
            claim_and_upsert,
            transaction,
            second_row,
            claim,
            claim_protected,
            protected,
        })
    }
}

async fn with_tables(settings: &[&str]) -> anyhow::Result<Postgres> {
    let database = Postgres::start_with(settings).await?;
    let mut connection = PgConnection::connect(&database.url()).await?;
    postgres::install(&mut connection).await?;
    psql(&database, TABLES)?;
    sqlx::query("insert into second select 'bench/' || n, 1 from generate_series(0, $1) as n")
        .bind(i64::from(RESOURCES) - 1)
        .execute(&mut connection)
        .await?;
    Ok(database)
}

/// How large the fence table has become.
async fn pages_after_many_writes(database: &Postgres) -> anyhow::Result<i64> {
    let mut connection = PgConnection::connect(&database.url()).await?;
    sqlx::raw_sql("truncate fence.fence").execute(&mut connection).await?;
    let each = Length::Transactions(BLOAT_WRITES / CLIENTS);
    pgbench(database, &script_over(BLOAT_RESOURCES, &[CLAIM_AND_UPSERT]), CLIENTS, each)?;
    let pages = "select pg_relation_size('fence.fence') / current_setting('block_size')::bigint";
    Ok(sqlx::query_scalar(pages).fetch_one(&mut connection).await?)
}

fn script_over(resources: u32, statements: &[&str]) -> String {
    format!("\\set n random(0, {resources} - 1)\n{}\n", statements.concat())
}

impl Report {
    fn table(&self) -> String {
        let Self { clients, seconds, figures, targets, bloat, .. } = self;
        let mut text = format!(
            "Writes into PostgreSQL by pgbench, {clients} clients, {RESOURCES} resources, {seconds} s \
             each; on the right, where a commit takes 2 ms\n\n{:<42}",
            ""
        );
        text += &"  per second  of unfenced".repeat(2);
        text += "\n";
        for figure in figures {
            text += &format!(
                "{:<42}  {:>10.0}  {:>11.2}  {:>10.0}  {:>11.2}\n",
                figure.subject,
                figure.per_second,
                figure.of_unfenced,
                figure.per_second_with_slow_commits,
                figure.of_unfenced_with_slow_commits,
            );
        }
        text += "\n";
        for target in targets {
            text += &target.line();
        }
        let Bloat { writes, resources, pages, at_most, reached } = bloat;
        let reached = if *reached { "reached" } else { "MISSED" };
        text += &format!(
            "pages of the fence table after {writes} writes on {resources} resources: {pages}, to be \
             at most {at_most}: {reached}\n"
        );
        text
    }
}
