//! The report of the bench, as tables or as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

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
    rounds: usize,
    uncontended: Vec<Figure>,
    handovers: Vec<Figure>,
    leases: HeldLeases,
    #[serde(rename = "targets")]
    goals: Vec<Goal>,
}

#[derive(Debug, Serialize)]
struct Figure {
    #[serde(flatten)]
    times: Times,
    /// As multiples of the median PING.
    p50_pings: f64,
    p99_pings: f64,
    /// What Redis did, in the mean of all samples.
    commands: f64,
    evalshas: f64,
    reads: f64,
    calls: BTreeMap<String, f64>,
}

impl Report {
    pub(super) fn new(rounds: usize, measurements: &Measurements, leases: HeldLeases) -> Self {
        let Measurements { uncontended, busy, idle, polled } = measurements;
        let ping_us = uncontended[0].quantile_us(0.5);
        let figure = |series| Figure::new(series, ping_us);
        Self {
            service: "redis",
            rounds,
            uncontended: uncontended.iter().map(figure).collect(),
            handovers: busy.iter().chain(idle).chain(polled).map(figure).collect(),
            goals: goals(measurements, &leases),
            leases,
        }
    }
}

fn goals(
    Measurements { uncontended, busy, idle, .. }: &Measurements,
    leases: &HeldLeases,
) -> Vec<Goal> {
    let [ping, ping_after_pause, ours, ours_new, rslock, rslock_new, ..] = uncontended;
    let evalshas = ours.mean(ours.work().calls_of("evalsha"));
    let mut goals = vec![
        Goal::at_most("acquire, token, release of rslock's", 1.15, ours.ratio_in_parts(rslock)),
        Goal::at_most("the same, new names", 1.15, ours_new.ratio_in_parts(rslock_new)),
        // One to acquire, and one to release.
        Goal::at_most("EVALSHAs to acquire and release", 2.0, evalshas),
    ];
    goals.extend(busy.iter().flat_map(|series| handover_goals(series, "PINGs", ping)));
    let after_pause = |series| handover_goals(series, "PINGs after a pause", ping_after_pause);
    goals.extend(idle.iter().flat_map(after_pause));
    let [_, few_fair, _, many_fair, ..] = busy;
    let commands = |series: &Series| series.mean(series.work().all_calls());
    let many_of_few = commands(many_fair) / commands(few_fair);
    goals.push(Goal::at_most("commands per fair handover, 100 wait of 2", 1.1, many_of_few));
    goals.push(Goal::at_least("leases held in the end", 1.0, leases.part_held()));
    goals.extend(leases.peak_rss_mib.map(|peak| Goal::at_most("peak memory in MiB", 100.0, peak)));
    goals
}

/// The goals for a handover, in multiples of the median PING.
fn handover_goals(series: &Series, pings: &str, ping: &Series) -> [Goal; 2] {
    [("p50", 0.5, 5.0), ("p99", 0.99, 100.0)].map(|(quantile, part, bound)| {
        let subject = format!("handover, {}: {quantile} in {pings}", series.subject());
        Goal::at_most(subject, bound, series.quantile_us(part) / ping.quantile_us(0.5))
    })
}

impl Figure {
    fn new(series: &Series, ping_us: f64) -> Self {
        let (times, work) = (series.times(), series.work());
        Self {
            p50_pings: times.p50_us / ping_us,
            p99_pings: times.p99_us / ping_us,
            times,
            commands: series.mean(work.all_calls()),
            evalshas: series.mean(work.calls_of("evalsha")),
            reads: series.mean(work.reads()),
            calls: work.calls().iter().map(|(name, n)| (name.clone(), series.mean(*n))).collect(),
        }
    }

    fn table(title: &str, figures: &[Self]) -> Table {
        let header = [
            title,
            "count",
            "p50 us",
            "p99 us",
            "p50 PINGs",
            "p99 PINGs",
            "commands",
            "EVALSHAs",
            "reads",
        ];
        let rows = figures.iter().map(|figure| {
            let [subject, count, p50_us, p99_us] = figure.times.cells();
            let [p50_pings, p99_pings] =
                [figure.p50_pings, figure.p99_pings].map(|pings| format!("{pings:.1}"));
            let [commands, evalshas, reads] =
                [figure.commands, figure.evalshas, figure.reads].map(|mean| format!("{mean:.2}"));
            [subject, count, p50_us, p99_us, p50_pings, p99_pings, commands, evalshas, reads]
        });
        Table::new(header, rows)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, uncontended, handovers, leases, goals, .. } = self;
        writeln!(
            f,
            "Locks on one Redis, over TCP on this machine; each kind in one thread; \
             {rounds} rounds\n"
        )?;
        writeln!(f, "{}", Figure::table("uncontended, one after the other", uncontended))?;
        writeln!(f, "{}", Figure::table("handover (busy for 1 ms unless noted)", handovers))?;
        write!(f, "{leases}")?;
        write!(f, "\n{}", Goal::table(goals))
    }
}
