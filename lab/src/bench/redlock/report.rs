//! The report of the bench, as tables or as JSON.

use std::fmt;

use serde::Serialize;

use super::measurements::{Measurements, Pair};
use crate::{
    bench::{
        goal::Goal,
        series::{Series, Times},
    },
    output::Table,
};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    bench: &'static str,
    rounds: usize,
    all_up: Vec<AllUp>,
    one_hung: Vec<OneHung>,
    /// The longest time until a resumed node owned locks again.
    back_within_ms: f64,
    #[serde(rename = "targets")]
    goals: Vec<Goal>,
}

#[derive(Debug, Serialize)]
struct AllUp {
    #[serde(flatten)]
    times: Times,
    /// The median, as a multiple of rslock's on the same nodes.
    of_rslock: Option<f64>,
    /// What each node did, in the mean of all samples.
    commands_per_node: f64,
    evalshas_per_node: f64,
    reads_per_node: f64,
    /// A lower bound of the part of the acquires that took one round trip.
    in_one_round_trip: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OneHung {
    #[serde(flatten)]
    times: Times,
    /// The median, as a multiple of the same with all five nodes up.
    of_all_up: f64,
}

impl Report {
    pub(super) fn new(rounds: usize, measurements: &Measurements) -> Self {
        let Measurements { all_up, hung } = measurements;
        let [.., five] = all_up;
        let one_hung = |series: &Series, all_up: &Series| OneHung {
            times: series.times(),
            of_all_up: series.p50_ratio(all_up),
        };
        Self {
            bench: "redlock",
            rounds,
            all_up: all_up.iter().flat_map(AllUp::from_pair).collect(),
            one_hung: vec![
                one_hung(&hung.first, &five.fenced),
                one_hung(&hung.last, &five.fenced),
                one_hung(&hung.rslock, &five.rslock),
            ],
            back_within_ms: hung.back_within.as_secs_f64() * 1e3,
            goals: goals(measurements),
        }
    }
}

fn goals(Measurements { all_up: [_, three, five], hung }: &Measurements) -> Vec<Goal> {
    let ours = &five.fenced;
    let percent = |pair: &Pair| 100.0 * pair.in_one_round_trip();
    let of_rslock = "5 nodes: acquire, token, release of rslock's";
    vec![
        Goal::at_most(of_rslock, 0.8, ours.p50_ratio(&five.rslock)),
        Goal::at_most("5 nodes, the first hung: of all up", 1.05, hung.first.p50_ratio(ours)),
        Goal::at_most("5 nodes, the last hung: of all up", 1.05, hung.last.p50_ratio(ours)),
        Goal::at_least("3 nodes: percent of acquires in one round trip", 99.0, percent(three)),
        Goal::at_least("5 nodes: percent of acquires in one round trip", 99.0, percent(five)),
    ]
}

impl AllUp {
    fn from_pair(pair: &Pair) -> [Self; 2] {
        let figure = |series: &Series, of_rslock, in_one_round_trip| {
            let per_node = |count| series.mean(count) / pair.nodes as f64;
            Self {
                times: series.times(),
                of_rslock,
                commands_per_node: per_node(series.work().all_calls()),
                evalshas_per_node: per_node(series.work().calls_of("evalsha")),
                reads_per_node: per_node(series.work().reads()),
                in_one_round_trip,
            }
        };
        let of_rslock = pair.fenced.p50_ratio(&pair.rslock);
        // One node needs no seal.
        let in_one_round_trip = (pair.nodes > 1).then(|| pair.in_one_round_trip());
        [figure(&pair.fenced, Some(of_rslock), in_one_round_trip), figure(&pair.rslock, None, None)]
    }

    fn cells(&self) -> [String; 9] {
        let [subject, count, p50_us, p99_us] = self.times.cells();
        let decimals = |figure: f64| format!("{figure:.2}");
        let [commands, evalshas, reads] =
            [self.commands_per_node, self.evalshas_per_node, self.reads_per_node].map(decimals);
        let of_rslock = self.of_rslock.map_or(String::new(), decimals);
        let percent = |part| format!("{:.2} %", 100.0 * part);
        let one_trip = self.in_one_round_trip.map_or(String::new(), percent);
        [subject, count, p50_us, p99_us, of_rslock, commands, evalshas, reads, one_trip]
    }
}

impl OneHung {
    fn cells(&self) -> [String; 5] {
        let [subject, count, p50_us, p99_us] = self.times.cells();
        [subject, count, p50_us, p99_us, format!("{:.2}", self.of_all_up)]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, all_up, one_hung, back_within_ms, goals, .. } = self;
        writeln!(
            f,
            "Locks on independent Redis nodes, over TCP on this machine; all in one thread, one \
             after the other; {rounds} rounds\n"
        )?;
        let header = [
            "all nodes up",
            "count",
            "p50 us",
            "p99 us",
            "of rslock",
            "commands",
            "EVALSHAs",
            "reads",
            "one trip",
        ];
        writeln!(f, "{}", Table::new(header, all_up.iter().map(AllUp::cells)))?;
        let header = ["one node hung", "count", "p50 us", "p99 us", "of all up"];
        writeln!(f, "{}", Table::new(header, one_hung.iter().map(OneHung::cells)))?;
        writeln!(
            f,
            "commands, EVALSHAs and reads: of each node; one trip: acquires in one round trip, at \
             least\na resumed node owns locks again within {back_within_ms:.0} ms\n"
        )?;
        write!(f, "{}", Goal::table(goals))
    }
}
