//! What the bench found, as text or as JSON.

use serde::Serialize;

use super::lines::{Lines, Pair};
use crate::bench::{line::Line, target::Target};

/// At most so much of rslock's time are acquire, token and release meant to take on five nodes.
const OF_RSLOCK: f64 = 1.0;
/// At most so much of the time with all nodes are they meant to take while one hangs.
const OF_ALL_UP: f64 = 1.3;
/// At least so many of the acquires that nobody hinders are meant to take one round trip.
const PERCENT_IN_ONE_ROUND_TRIP: f64 = 99.0;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    bench: &'static str,
    rounds: usize,
    all_up: Vec<AllUp>,
    one_hung: Vec<OneHung>,
    /// How long it took at most until a node that went on was owned again.
    back_within_ms: f64,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct Figure {
    subject: &'static str,
    count: usize,
    p50_us: f64,
    p99_us: f64,
}

#[derive(Debug, Serialize)]
struct AllUp {
    #[serde(flatten)]
    figure: Figure,
    /// Half of them, beside half of rslock's on the same nodes.
    of_rslock: Option<f64>,
    /// What each node did for each, in the mean.
    commands_per_node: f64,
    evalshas_per_node: f64,
    reads_per_node: f64,
    /// The part of the acquires, at least.
    in_one_round_trip: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OneHung {
    #[serde(flatten)]
    figure: Figure,
    /// Half of them, beside half of the same with all five nodes.
    of_all_up: f64,
}

impl Report {
    pub(super) fn of(rounds: usize, lines: &Lines) -> Self {
        let hung = &lines.hung;
        let five = &lines.five;
        let one_hung =
            [(&hung.first, &five.fenced), (&hung.last, &five.fenced), (&hung.rslock, &five.rslock)];
        Self {
            bench: "redlock",
            rounds,
            all_up: lines.pairs().into_iter().flat_map(AllUp::of).collect(),
            one_hung: one_hung
                .into_iter()
                .map(|(line, all_up)| OneHung {
                    figure: Figure::of(line),
                    of_all_up: p50_ratio(line, all_up),
                })
                .collect(),
            back_within_ms: hung.back_within.as_secs_f64() * 1e3,
            targets: targets(lines),
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "Locks on independent Redis nodes, over TCP on this machine; all in one thread, one after \
             the other; {} rounds\n\n",
            self.rounds
        );
        text += &format!(
            "{:<36} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>10}\n",
            "all nodes up",
            "count",
            "p50 us",
            "p99 us",
            "of rslock",
            "commands",
            "EVALSHAs",
            "reads",
            "one trip"
        );
        text.extend(self.all_up.iter().map(AllUp::line));
        text += &format!(
            "\n{:<36} {:>6} {:>9} {:>9} {:>9}\n",
            "one node hung", "count", "p50 us", "p99 us", "of all up"
        );
        text.extend(self.one_hung.iter().map(OneHung::line));
        text += &format!(
            "\ncommands, EVALSHAs and reads: of each node; one trip: acquires in one round trip, at \
             least\na node that goes on is one of the owners within {:.0} ms\n\n",
            self.back_within_ms
        );
        text.extend(self.targets.iter().map(Target::line));
        text
    }
}

fn targets(Lines { three, five, hung, .. }: &Lines) -> Vec<Target> {
    vec![
        Target::at_most(
            "5 nodes: acquire, token, release of rslock's",
            OF_RSLOCK,
            p50_ratio(&five.fenced, &five.rslock),
        ),
        Target::at_most(
            "5 nodes, the first hung: of all up",
            OF_ALL_UP,
            p50_ratio(&hung.first, &five.fenced),
        ),
        Target::at_most(
            "5 nodes, the last hung: of all up",
            OF_ALL_UP,
            p50_ratio(&hung.last, &five.fenced),
        ),
        Target::at_least(
            "3 nodes: percent of acquires in one round trip",
            PERCENT_IN_ONE_ROUND_TRIP,
            100.0 * three.in_one_round_trip(),
        ),
        Target::at_least(
            "5 nodes: percent of acquires in one round trip",
            PERCENT_IN_ONE_ROUND_TRIP,
            100.0 * five.in_one_round_trip(),
        ),
    ]
}

fn p50_ratio(line: &Line, other: &Line) -> f64 {
    line.samples.quantile_us(0.5) / other.samples.quantile_us(0.5)
}

impl Figure {
    fn of(line: &Line) -> Self {
        let quantile = |part| line.samples.quantile_us(part);
        Self {
            subject: line.subject,
            count: line.samples.count(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
        }
    }

    fn line(&self) -> String {
        let Self { subject, count, p50_us, p99_us } = self;
        format!("{subject:<36} {count:>6} {p50_us:>9.1} {p99_us:>9.1}")
    }
}

impl AllUp {
    fn of(pair: &Pair) -> [Self; 2] {
        let figure = |line: &Line, of_rslock, in_one_round_trip| {
            let per_node = |count| line.each(count) / pair.nodes as f64;
            Self {
                figure: Figure::of(line),
                of_rslock,
                commands_per_node: per_node(line.work.all_calls()),
                evalshas_per_node: per_node(line.work.calls_of("evalsha")),
                reads_per_node: per_node(line.work.reads()),
                in_one_round_trip,
            }
        };
        let of_rslock = p50_ratio(&pair.fenced, &pair.rslock);
        // On one node there is no second.
        let in_one_round_trip = (pair.nodes > 1).then(|| pair.in_one_round_trip());
        [figure(&pair.fenced, Some(of_rslock), in_one_round_trip), figure(&pair.rslock, None, None)]
    }

    fn line(&self) -> String {
        let Self { commands_per_node, evalshas_per_node, reads_per_node, .. } = self;
        let of_rslock = self.of_rslock.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let share = |share: f64| format!("{:.2} %", 100.0 * share);
        let one_trip = self.in_one_round_trip.map_or(String::new(), share);
        let line = format!(
            "{} {of_rslock:>9} {commands_per_node:>9.2} {evalshas_per_node:>9.2} {reads_per_node:>6.2} \
             {one_trip:>10}",
            self.figure.line()
        );
        format!("{}\n", line.trim_end())
    }
}

impl OneHung {
    fn line(&self) -> String {
        format!("{} {:>9.2}\n", self.figure.line(), self.of_all_up)
    }
}
