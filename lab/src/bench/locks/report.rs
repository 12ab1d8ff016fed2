//! What the bench found, as text or as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{crowd::Crowd, lines::Lines};
use crate::bench::{line::Line, target::Target};

/// At most so much of rslock's time is acquire, token and release meant to take.
const OF_RSLOCK: f64 = 1.1;
/// One EVALSHA to acquire, and one to release.
const EVALSHAS: f64 = 2.0;
/// At most so many PINGs is a handover meant to take.
const HANDOVER_P50: f64 = 10.0;
const HANDOVER_P99: f64 = 100.0;
/// At most so much of the commands for few waiters are those for many meant to be, if it is fair.
const MANY_OF_FEW: f64 = 1.1;
/// At most so much memory is the process meant to need that holds the leases.
const PEAK_RSS_MIB: f64 = 100.0;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    bench: &'static str,
    rounds: usize,
    uncontended: Vec<Figure>,
    handovers: Vec<Figure>,
    leases: Crowd,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct Figure {
    subject: &'static str,
    count: usize,
    p50_us: f64,
    p99_us: f64,
    /// In PINGs, of which half take no longer than one.
    p50_pings: f64,
    p99_pings: f64,
    /// What Redis did for each, in the mean.
    commands: f64,
    evalshas: f64,
    reads: f64,
    calls: BTreeMap<String, f64>,
}

impl Report {
    pub(super) fn of(rounds: usize, lines: &Lines, leases: Crowd) -> Self {
        let ping_us = lines.ping.samples.quantile_us(0.5);
        let figures = |lines: &[&Line]| {
            lines.iter().map(|line| Figure::of(line, ping_us)).collect::<Vec<_>>()
        };
        Self {
            bench: "locks",
            rounds,
            uncontended: figures(&lines.uncontended()),
            handovers: figures(&lines.handovers.all()),
            targets: targets(lines, &leases),
            leases,
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "Locks in one Redis, over TCP on this machine; all of one kind in one thread; {} rounds\n\n",
            self.rounds
        );
        text += &heading("uncontended, one after the other");
        text.extend(self.uncontended.iter().map(Figure::line));
        text += "\n";
        text += &heading("handover (busy for 1 ms if not told)");
        text.extend(self.handovers.iter().map(Figure::line));
        let Crowd { leases, ttl_ms, held_for_ms, taken, relied_on, renewals, .. } = &self.leases;
        text += &format!(
            "\n{leases} leases of {ttl_ms} ms in one process: after {held_for_ms} ms and {renewals:.1} \
             renewals each, {taken} locks are taken and {relied_on} leases relied on\n"
        );
        if self.leases.peak_rss_mib.is_none() {
            text += "how much memory the process had at most, only Linux tells\n";
        }
        text += "\n";
        text.extend(self.targets.iter().map(Target::line));
        text
    }
}

fn targets(lines: &Lines, leases: &Crowd) -> Vec<Target> {
    let of_rslock = |subject, ours: &Line, theirs: &Line| {
        let ratio = ours.samples.quantile_us(0.5) / theirs.samples.quantile_us(0.5);
        Target::at_most(subject, OF_RSLOCK, ratio)
    };
    let evalshas = lines.fenced.each(lines.fenced.work.calls_of("evalsha"));
    let mut targets = vec![
        of_rslock("acquire, token, release of rslock's", &lines.fenced, &lines.rslock),
        of_rslock("the same, new names", &lines.fenced_new, &lines.rslock_new),
        Target::at_most("EVALSHAs to acquire and release", EVALSHAS, evalshas),
    ];
    let handovers = &lines.handovers;
    let commands = |line: &Line| line.each(line.work.all_calls());
    for line in handovers.busy() {
        targets.extend(in_pings(line, &lines.ping, ""));
    }
    for line in handovers.idle() {
        targets.extend(in_pings(line, &lines.ping_after_pause, " after a pause"));
    }
    targets.extend([
        Target::at_most(
            "commands per fair handover, 100 wait of 2",
            MANY_OF_FEW,
            commands(&handovers.many_fair) / commands(&handovers.few_fair),
        ),
        Target::at_least("leases held in the end", 1.0, leases.part_held()),
    ]);
    let peak = leases.peak_rss_mib;
    targets.extend(peak.map(|peak| Target::at_most("peak memory in MiB", PEAK_RSS_MIB, peak)));
    targets
}

/// A handover in PINGs, of which half take no longer than one.
fn in_pings(line: &Line, ping: &Line, which: &str) -> [Target; 2] {
    let ping_us = ping.samples.quantile_us(0.5);
    [("p50", 0.5, HANDOVER_P50), ("p99", 0.99, HANDOVER_P99)].map(|(quantile, part, bound)| {
        let subject = format!("handover, {}: {quantile} in PINGs{which}", line.subject);
        Target::at_most(subject, bound, line.samples.quantile_us(part) / ping_us)
    })
}

fn heading(of: &str) -> String {
    format!(
        "{of:<42} {:>6} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9} {:>7}\n",
        "count", "p50 us", "p99 us", "p50 PINGs", "p99 PINGs", "commands", "EVALSHAs", "reads"
    )
}

impl Figure {
    fn of(line: &Line, ping_us: f64) -> Self {
        let quantile = |part| line.samples.quantile_us(part);
        let (p50_us, p99_us) = (quantile(0.5), quantile(0.99));
        let calls = line.work.calls().iter();
        Self {
            subject: line.subject,
            count: line.samples.count(),
            p50_us,
            p99_us,
            p50_pings: p50_us / ping_us,
            p99_pings: p99_us / ping_us,
            commands: line.each(line.work.all_calls()),
            evalshas: line.each(line.work.calls_of("evalsha")),
            reads: line.each(line.work.reads()),
            calls: calls.map(|(command, calls)| (command.clone(), line.each(*calls))).collect(),
        }
    }

    fn line(&self) -> String {
        let Self { subject, count, p50_us, p99_us, p50_pings, p99_pings, .. } = self;
        let Self { commands, evalshas, reads, .. } = self;
        format!(
            "{subject:<42} {count:>6} {p50_us:>9.1} {p99_us:>9.1} {p50_pings:>10.1} {p99_pings:>10.1} \
             {commands:>9.2} {evalshas:>9.2} {reads:>7.2}\n"
        )
    }
}
