//! The report of one lock service, as tables or as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{super::held_leases::HeldLeases, measurements::Measurements};
use crate::{
    bench::{
        goal::Goal,
        series::{Series, Times},
    },
    output::Table,
};

#[derive(Debug, Serialize)]
pub(in super::super) struct Report {
    service: &'static str,
    #[serde(skip)]
    title: &'static str,
    rounds: usize,
    /// What `commands` counts.
    command: &'static str,
    #[serde(flatten)]
    measured: Measured,
    #[serde(skip_serializing_if = "Option::is_none")]
    leases: Option<HeldLeases>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_commits: Option<SlowCommits>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum SlowCommits {
    Measured(Measured),
    NotMeasured { because: String },
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Measured {
    uncontended: Vec<Figure>,
    handovers: Vec<Figure>,
    #[serde(rename = "targets")]
    goals: Vec<Goal>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Figure {
    #[serde(flatten)]
    times: Times,
    /// As a multiple of the least: of both its round trips for a lock that nobody else wants, and of
    /// one of them for a handover.
    p50_of_least: f64,
    /// How many the server carried out, in the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commands: Option<f64>,
}

impl Report {
    pub(super) fn new(rounds: usize, measurements: &Measurements) -> Self {
        let server = &measurements.server;
        Self {
            service: server.name(),
            title: server.title(),
            rounds,
            command: server.command(),
            measured: Measured::new(measurements),
            leases: None,
            slow_commits: None,
        }
    }

    pub(super) fn with_leases(self, leases: HeldLeases) -> Self {
        Self { leases: Some(leases), ..self }
    }

    pub(super) fn with_slow_commits(self, slow_commits: SlowCommits) -> Self {
        Self { slow_commits: Some(slow_commits), ..self }
    }
}

impl Measured {
    fn new(measurements: &Measurements) -> Self {
        let Measurements { least, ours, round_trip, others, handovers, .. } = measurements;
        let least_us = least.quantile_us(0.5);
        let counted =
            |series| Figure { commands: Some(commands(series)), ..Figure::new(series, least_us) };
        let uncounted = |series| Figure::new(series, least_us);
        let beside = [round_trip].into_iter().chain(others).map(uncounted);
        let uncontended = [uncounted(least), counted(ours)].into_iter().chain(beside).collect();
        let handover = |series| Figure {
            commands: Some(commands(series)),
            ..Figure::new(series, least_us / 2.0)
        };
        let handovers = handovers.iter().map(handover).collect();
        Self { uncontended, handovers, goals: goals(measurements) }
    }

    /// The median of the least, in microseconds.
    pub(super) fn least_us(&self) -> Option<f64> {
        Some(self.uncontended.first()?.times.p50_us)
    }
}

fn commands(series: &Series<u64>) -> f64 {
    series.mean(*series.work())
}

fn goals(measurements: &Measurements) -> Vec<Goal> {
    let Measurements { server, least, ours, handovers, many: waiters, .. } = measurements;
    let of_least = ours.ratio_in_parts(least);
    let subject = "acquire, token, release of the least";
    let mut goals = vec![Goal::at_most(subject, server.goal_of_least(), of_least)];
    goals.extend(handovers.iter().map(|series| {
        let subject = format!("handover, {}: p50 in round trips of the least", series.subject());
        Goal::at_most(subject, 3.0, 2.0 * series.p50_ratio(least))
    }));
    let [few, few_fair, many, many_fair] = handovers.each_ref().map(commands);
    for (kind, ratio) in [("handover", many / few), ("fair handover", many_fair / few_fair)] {
        goals.push(Goal::at_most(format!("commands per {kind}, {waiters} wait of 2"), 1.1, ratio));
    }
    goals
}

impl Figure {
    fn new(series: &Series<u64>, least_us: f64) -> Self {
        let times = series.times();
        Self { p50_of_least: times.p50_us / least_us, times, commands: None }
    }

    fn table(title: &str, least: &str, figures: &[Self]) -> Table {
        let rows = figures.iter().map(|figure| {
            let [subject, count, p50_us, p99_us] = figure.times.cells();
            let of_least = format!("{:.2}", figure.p50_of_least);
            let commands = figure.commands.map(|mean| format!("{mean:.2}")).unwrap_or_default();
            [subject, count, p50_us, p99_us, of_least, commands]
        });
        Table::new([title, "count", "p50 us", "p99 us", least, "commands"], rows)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, rounds, command, measured, leases, slow_commits, .. } = self;
        writeln!(f, "Locks in {title}; each kind in one thread; {rounds} rounds")?;
        writeln!(f, "commands: {command}, in the mean; round trips: halves of the least\n")?;
        write!(f, "{measured}")?;
        if let Some(leases) = leases {
            write!(f, "\n{leases}")?;
        }
        match slow_commits {
            Some(SlowCommits::Measured(slow)) => {
                write!(f, "\nThe same, if each commit takes 2 ms longer:\n\n{slow}")
            }
            Some(SlowCommits::NotMeasured { because }) => {
                writeln!(f, "\nNot measured with slow commits: {because}")
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uncontended, handovers, goals } = self;
        let uncontended =
            Figure::table("uncontended, one after the other", "p50 of least", uncontended);
        writeln!(f, "{uncontended}")?;
        writeln!(f, "{}", Figure::table("handover", "p50 round trips", handovers))?;
        write!(f, "{}", Goal::table(goals))
    }
}
