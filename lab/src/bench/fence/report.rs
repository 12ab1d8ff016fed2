//! The report of the bench, as tables or as JSON.

use std::fmt;

use serde::Serialize;

use super::{
    bloat::Bloat,
    bulk::Bulk,
    figure::{BulkFigure, Figure},
    rates::Rates,
    workload::Workload::{
        self, ClaimAndUpsert, ClaimThenUpsert, ClaimThenUpsertProtected,
        PresentThenUpsertProtected, UpsertWithRule,
    },
};
use crate::{
    bench::{goal::Goal, load::RESOURCES},
    output::Table,
};

#[derive(Debug)]
pub(super) struct Measured {
    /// In PostgreSQL.
    pub(super) fast: Rates,
    /// In PostgreSQL, where each commit takes 2 ms or longer.
    pub(super) slow: Rates,
    pub(super) postgres_bulk: Bulk,
    pub(super) bloat: Bloat,
    pub(super) mariadb: Rates,
    pub(super) mariadb_bulk: Bulk,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    bench: &'static str,
    clients: u32,
    seconds: u32,
    /// In PostgreSQL.
    figures: Vec<Figure>,
    mariadb: Vec<Figure>,
    bulk: Vec<BulkFigure>,
    #[serde(rename = "targets")]
    goals: Vec<Goal>,
    bloat: Bloat,
}

impl Report {
    pub(super) fn new(clients: u32, seconds: u32, measured: Measured) -> Self {
        let Measured { fast, slow, postgres_bulk, bloat, mariadb, mariadb_bulk } = measured;
        let goal = |workload: Workload, bound| {
            Goal::at_least(workload.subject(), bound, fast.of_unfenced(workload))
        };
        let slow_goal = |workload, bound| {
            Goal::at_least("the same, slow commits", bound, slow.of_unfenced(workload))
        };
        let goals = vec![
            goal(UpsertWithRule, 0.85),
            goal(ClaimAndUpsert, 0.7),
            slow_goal(ClaimAndUpsert, 0.85),
            goal(ClaimThenUpsert, 0.7),
            goal(ClaimThenUpsertProtected, 0.6),
            goal(PresentThenUpsertProtected, 0.6),
            slow_goal(PresentThenUpsertProtected, 0.7),
            Goal::at_most(
                format!("insert of {} rows into a protected table", postgres_bulk.protected_rows),
                5.0,
                postgres_bulk.insert.of_bare(),
            ),
            Goal::at_most(
                format!("the same in MariaDB, {} rows", mariadb_bulk.protected_rows),
                20.0,
                mariadb_bulk.insert.of_bare(),
            ),
        ];
        Self {
            bench: "fence",
            clients,
            seconds,
            figures: Figure::list(&fast, Some(&slow)),
            mariadb: Figure::list(&mariadb, None),
            bulk: [("PostgreSQL", &postgres_bulk), ("MariaDB", &mariadb_bulk)]
                .into_iter()
                .flat_map(|(database, bulk)| BulkFigure::list(database, bulk))
                .collect(),
            goals,
            bloat,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, seconds, figures, mariadb, bulk, goals, bloat, .. } = self;
        let rows = figures.iter().filter_map(|figure| {
            let ([subject, rate, part], [slow_rate, slow_part]) =
                (figure.cells(), figure.slow.as_ref()?.cells());
            Some([subject, rate, part, slow_rate, slow_part])
        });
        let header = ["", "per second", "of unfenced", "slow: per second", "slow: of unfenced"];
        writeln!(
            f,
            "Writes into PostgreSQL by pgbench, {clients} clients, {RESOURCES} resources, \
             {seconds} s each; slow: a commit takes 2 ms\n\n{}",
            Table::new(header, rows)
        )?;
        writeln!(
            f,
            "Writes into MariaDB by sqlx, {clients} clients, {RESOURCES} resources, \
             {seconds} s each\n\n{}",
            Table::new(["", "per second", "of unfenced"], mariadb.iter().map(Figure::cells))
        )?;
        let header =
            ["", "rows bare", "us per row", "rows protected", "us per row", "of bare, per row"];
        writeln!(
            f,
            "Many rows of one resource, written by one statement under one claim\n\n{}",
            Table::new(header, bulk.iter().map(BulkFigure::cells))
        )?;
        write!(f, "{}", Goal::table(goals.iter().chain([&bloat.goal])))
    }
}
