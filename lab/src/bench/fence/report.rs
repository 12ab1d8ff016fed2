//! The report of the bench, as tables or as JSON.

use std::fmt;

use serde::Serialize;

use super::workload::{
    Rates,
    Workload::{self, ClaimAndUpsert, PresentThenUpsertProtected, UpsertWithRule},
};
use crate::{
    bench::{goal::Goal, load::RESOURCES},
    output::Table,
};

const MOST_PAGES: u32 = 300;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    bench: &'static str,
    clients: u32,
    seconds: u32,
    figures: Vec<Figure>,
    #[serde(rename = "targets")]
    goals: Vec<Goal>,
    bloat: Bloat,
}

#[derive(Debug, Serialize)]
struct Figure {
    subject: &'static str,
    per_second: f64,
    of_unfenced: f64,
    /// Slow commits take 2 ms or longer.
    per_second_with_slow_commits: f64,
    of_unfenced_with_slow_commits: f64,
}

/// The size of the fence table after many writes on few resources.
#[derive(Debug, Serialize)]
pub(super) struct Bloat {
    writes: u32,
    resources: u32,
    pages: u32,
    at_most: u32,
    reached: bool,
    #[serde(skip)]
    goal: Goal,
}

impl Report {
    pub(super) fn new(clients: u32, seconds: u32, fast: Rates, slow: Rates, bloat: Bloat) -> Self {
        let figures = Workload::ALL.map(|workload| Figure {
            subject: workload.subject(),
            per_second: fast.get(workload),
            of_unfenced: fast.of_unfenced(workload),
            per_second_with_slow_commits: slow.get(workload),
            of_unfenced_with_slow_commits: slow.of_unfenced(workload),
        });
        let goal = |subject, bound, rates: Rates, workload| {
            Goal::at_least(subject, bound, rates.of_unfenced(workload))
        };
        let goals = vec![
            goal("the rule in an upsert", 0.85, fast, UpsertWithRule),
            goal("claim and upsert in one statement", 0.85, fast, ClaimAndUpsert),
            goal("the same, slow commits", 0.85, slow, ClaimAndUpsert),
            goal("through a protected table", 0.7, fast, PresentThenUpsertProtected),
            goal("the same, slow commits", 0.7, slow, PresentThenUpsertProtected),
        ];
        Self { bench: "fence", clients, seconds, figures: figures.into(), goals, bloat }
    }
}

impl Bloat {
    pub(super) fn new(writes: u32, resources: u32, pages: u32) -> Self {
        let subject =
            format!("pages of the fence table after {writes} writes on {resources} resources");
        let goal = Goal::at_most(subject, MOST_PAGES.into(), pages.into());
        Self { writes, resources, pages, at_most: MOST_PAGES, reached: goal.met(), goal }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, seconds, figures, goals, bloat, .. } = self;
        let rows = figures.iter().map(|figure| {
            [
                figure.subject.to_owned(),
                format!("{:.0}", figure.per_second),
                format!("{:.2}", figure.of_unfenced),
                format!("{:.0}", figure.per_second_with_slow_commits),
                format!("{:.2}", figure.of_unfenced_with_slow_commits),
            ]
        });
        let header = ["", "per second", "of unfenced", "slow: per second", "slow: of unfenced"];
        writeln!(
            f,
            "Writes into PostgreSQL by pgbench, {clients} clients, {RESOURCES} resources, \
             {seconds} s each; slow: a commit takes 2 ms\n"
        )?;
        let goals = goals.iter().chain([&bloat.goal]);
        write!(f, "{}\n{}", Table::new(header, rows), Goal::table(goals))
    }
}
