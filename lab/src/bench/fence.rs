//! `lab bench fence`: the cost of the fence inside PostgreSQL and MariaDB.

mod bulk;
mod mariadb;
mod postgres;

use std::num::NonZeroUsize;

use clap::Args;
use serde_json::json;

use super::{
    goal::Goal,
    load::RESOURCES,
    report::{Report, Rows},
    subject::{Subject, Times, measure},
};
use crate::output::Output;

const CLIENTS: u32 = 16;
const ROUNDS: usize = 5;
/// Makes every commit take 2 ms or longer, as on many disks.
const SLOW_COMMITS: [&str; 2] = ["commit_delay=2000", "commit_siblings=0"];
/// How large the fence table may be after many writes.
const MOST_PAGES: u32 = 300;

#[derive(Args, Debug)]
pub struct FenceBench {
    /// How long to measure each rate, in five rounds of whole seconds
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: NonZeroUsize,
    #[command(flatten)]
    output: Output,
}

/// What clients repeat: its name, the number of the unfenced one that it is compared with, and its
/// statements. Several are one transaction.
type Workload = (&'static str, usize, &'static [&'static str]);

impl FenceBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let seconds = self.seconds.get().next_multiple_of(ROUNDS);
        let slow_database = postgres::start(&SLOW_COMMITS).await?;
        let mut slow = postgres::rates(&slow_database, seconds);
        measure("PostgreSQL with slow commits", &mut slow, ROUNDS).await?;
        let database = postgres::start(&[]).await?;
        let mut fast = postgres::rates(&database, seconds);
        measure("PostgreSQL", &mut fast, ROUNDS).await?;
        let mariadb = mariadb::start().await?;
        let mut in_mariadb = mariadb::rates(&mariadb, seconds);
        measure("MariaDB", &mut in_mariadb, ROUNDS).await?;
        let bulks = [postgres::bulk(&database).await?, mariadb::bulk(&mariadb).await?];
        let mut many_rows = Vec::new();
        for bulk in &bulks {
            let mut subjects = bulk.subjects();
            measure(bulk.database, &mut subjects, ROUNDS).await?;
            many_rows.push(subjects);
        }
        let pages = postgres::pages_after_many_writes(&database).await?;

        let mut report = Report::default();
        report.value("bench", "fence");
        report.value("clients", CLIENTS);
        report.value("seconds", seconds);
        report.line(format_args!(
            "Writes into PostgreSQL by pgbench, {CLIENTS} clients, {RESOURCES} resources, {seconds} s \
             each; slow: a commit takes 2 ms\n"
        ));
        let pairs: Vec<_> = fast.iter().zip(&slow).collect();
        report.table(
            Rows::new("figures", &pairs)
                .text("", "subject", |(fast, _)| fast.name())
                .figure("per second", "per_second", 0, |(fast, _)| Some(fast.figure()))
                .figure("of unfenced", "of_unfenced", 2, |(subject, _)| subject.of_beside(&fast))
                .figure("slow: per second", "per_second_with_slow_commits", 0, |(_, slow)| {
                    Some(slow.figure())
                })
                .figure("slow: of unfenced", "of_unfenced_with_slow_commits", 2, |(_, subject)| {
                    subject.of_beside(&slow)
                }),
        );
        report.line(format_args!(
            "Writes into MariaDB by sqlx, {CLIENTS} clients, {RESOURCES} resources, {seconds} s each\n"
        ));
        report.table(
            Rows::new("mariadb", &in_mariadb)
                .subjects("")
                .figure("per second", "per_second", 0, |subject| Some(subject.figure()))
                .figure("of unfenced", "of_unfenced", 2, |subject| subject.of_beside(&in_mariadb)),
        );
        report.line("Many rows of one resource, written by one statement under one claim\n");
        let pairs: Vec<_> = bulks
            .iter()
            .zip(&many_rows)
            .flat_map(|(bulk, subjects)| subjects.chunks(2).map(move |pair| (bulk, pair)))
            .collect();
        report.table(
            Rows::new("bulk", &pairs)
                .text("", "database", |(bulk, _)| bulk.database)
                .text("", "statement", |(_, pair)| pair[0].name())
                .number("rows bare", "bare_rows", |(bulk, _)| bulk.statements.bare_rows as usize)
                .figure("us per row", "bare_us_per_row", 1, |(_, pair)| Some(pair[0].figure()))
                .number("rows protected", "protected_rows", |(bulk, _)| {
                    bulk.statements.protected_rows as usize
                })
                .figure("us per row", "protected_us_per_row", 1, |(_, pair)| Some(pair[1].figure()))
                .figure("of bare, per row", "of_bare", 2, |(_, pair)| {
                    Some(pair[1].ratio(&pair[0]))
                }),
        );

        let (writes, resources) = (postgres::MANY_WRITES, postgres::FEW_RESOURCES);
        let bloat = json!({
            "writes": writes, "resources": resources, "pages": pages, "at_most": MOST_PAGES,
            "reached": pages <= MOST_PAGES,
        });
        report.value("bloat", bloat);
        let insert = |subjects: &[Subject<'_, Times>]| subjects[1].ratio(&subjects[0]);
        let mut goals = postgres::goals(&fast, &slow);
        goals.extend([
            Goal::at_most(
                format!(
                    "insert of {} rows into a protected table",
                    bulks[0].statements.protected_rows
                ),
                5.0,
                insert(&many_rows[0]),
            ),
            Goal::at_most(
                format!("the same in MariaDB, {} rows", bulks[1].statements.protected_rows),
                20.0,
                insert(&many_rows[1]),
            ),
            Goal::at_most(
                format!("pages of the fence table after {writes} writes on {resources} resources"),
                MOST_PAGES.into(),
                pages.into(),
            ),
        ]);
        report.goals(&goals);
        self.output.print(&report)
    }
}
