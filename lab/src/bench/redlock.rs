//! `lab bench redlock`: locks on a majority of independent Redis nodes.

mod cluster;

use std::num::NonZeroUsize;

use clap::Args;

use self::cluster::Cluster;
use super::{
    goal::Goal,
    peer::{Peer, name},
    report::{Report, Rows},
    subject::{Subject, Times, measure},
    work::Work,
};
use crate::output::Output;

/// The calls of one round trip to acquire and one to release. Another round trip adds a call.
const EVALSHAS: u64 = 2;

#[derive(Args, Debug)]
pub struct RedlockBench {
    /// How often to acquire and release each kind of lock
    #[arg(long, default_value = "5000", value_name = "COUNT")]
    acquires: NonZeroUsize,
    /// How often to do so with rslock while a node hangs: it waits for that node
    #[arg(long, default_value = "5", value_name = "COUNT")]
    waiting_acquires: NonZeroUsize,
    /// How many rounds to split the measurements into: the speed of a machine changes over time
    #[arg(long, default_value = "5", value_name = "COUNT")]
    rounds: NonZeroUsize,
    #[command(flatten)]
    output: Output,
}

impl RedlockBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let (rounds, acquires) = (self.rounds.get(), self.acquires.get());
        let waiting = self.waiting_acquires.get();
        let (one, three, five) =
            (Cluster::start(1).await?, Cluster::start(3).await?, Cluster::start(5).await?);
        // Ours are beside rslock on the same nodes, and those with a hung node beside the same lock with
        // all nodes up.
        let mut subjects = [
            all_up("1 node: acquire, token, release", &one, &one.fenced, acquires).beside(1),
            all_up("1 node, rslock: acquire, release", &one, &one.rslock, acquires),
            all_up("3 nodes", &three, &three.fenced, acquires).beside(3),
            all_up("3 nodes, rslock", &three, &three.rslock, acquires),
            all_up("5 nodes", &five, &five.fenced, acquires).beside(5),
            all_up("5 nodes, rslock", &five, &five.rslock, acquires),
            one_hung("5 nodes, the first hung", &five, 0, &five.fenced, acquires).beside(4),
            one_hung("5 nodes, the last hung", &five, 4, &five.fenced, acquires).beside(4),
            one_hung("5 nodes, the last hung, rslock", &five, 4, &five.rslock, waiting).beside(5),
        ];
        measure("redlock", &mut subjects, rounds).await?;

        let mut report = Report::default();
        report.value("bench", "redlock");
        report.value("rounds", rounds);
        report.line(format_args!(
            "Locks on independent Redis nodes, over TCP on this machine; all in one thread, one after \
             the other; {rounds} rounds\n"
        ));
        let per_node = |subject: &Subject<'_, Times>, count: fn(&Work) -> u64| {
            subject.mean(count).map(|mean| mean / nodes(subject) as f64)
        };
        report.table(
            Rows::new("all_up", &subjects[..6])
                .times("all nodes up")
                .figure("of rslock", "of_rslock", 2, |subject| subject.of_beside(&subjects))
                .figure("commands", "commands_per_node", 2, |subject| {
                    per_node(subject, Work::all_calls)
                })
                .figure("EVALSHAs", "evalshas_per_node", 2, |subject| {
                    per_node(subject, |work| work.calls_of("evalsha"))
                })
                .figure("reads", "reads_per_node", 2, |subject| {
                    per_node(subject, |work| work.reads)
                })
                // Only ours are beside another.
                .figure("one trip", "in_one_round_trip", 4, |subject| {
                    subject.of_beside(&subjects).and_then(|_| in_one_round_trip(subject))
                }),
        );
        report.table(Rows::new("one_hung", &subjects[6..]).times("one node hung").figure(
            "of all up",
            "of_all_up",
            2,
            |subject| subject.of_beside(&subjects),
        ));
        let back_within_ms = five.back_within.get().as_secs_f64() * 1e3;
        report.value("back_within_ms", back_within_ms);
        report.line(format_args!(
            "commands, EVALSHAs and reads: of each node; one trip: the part of the acquires in one \
             round trip, at least\na resumed node owns locks again within {back_within_ms:.0} ms\n"
        ));
        let of_beside = |number: usize| subjects[number].of_beside(&subjects).unwrap_or(f64::NAN);
        let percent =
            |number: usize| 100.0 * in_one_round_trip(&subjects[number]).unwrap_or(f64::NAN);
        report.goals(&[
            Goal::at_most("5 nodes: acquire, token, release of rslock's", 0.8, of_beside(4)),
            Goal::at_most("5 nodes, the first hung: of all up", 1.05, of_beside(6)),
            Goal::at_most("5 nodes, the last hung: of all up", 1.05, of_beside(7)),
            Goal::at_least("3 nodes: percent of acquires in one round trip", 99.0, percent(2)),
            Goal::at_least("5 nodes: percent of acquires in one round trip", 99.0, percent(4)),
        ]);
        self.output.print(&report)
    }
}

fn all_up<'a, P: Peer>(
    name_of_subject: &'static str,
    cluster: &'a Cluster,
    peer: &'a P,
    amount: usize,
) -> Subject<'a, Times> {
    Subject::new(name_of_subject, amount, move |count| cluster.cycles(peer, name("same"), count))
}

fn one_hung<'a, P: Peer>(
    name_of_subject: &'static str,
    cluster: &'a Cluster,
    hung: usize,
    peer: &'a P,
    amount: usize,
) -> Subject<'a, Times> {
    let run = move |count| cluster.cycles_while_one_hangs(hung, peer, count);
    Subject::new(name_of_subject, amount, run).once_a_round()
}

fn nodes(subject: &Subject<'_, Times>) -> usize {
    subject.samples().next().map_or(0, |sample| sample.work.len())
}

/// A lower bound of the part of the acquires of ours that took one round trip; one node needs no seal. A
/// seal or a second round shows as a further EVALSHA on a node, but so does a seal that nobody waited for.
fn in_one_round_trip(subject: &Subject<'_, Times>) -> Option<f64> {
    let mut unexpected = 0;
    for Times { times, work } in subject.samples() {
        let expected = EVALSHAS * times.len() as u64;
        unexpected +=
            work.iter().map(|work| work.calls_of("evalsha").abs_diff(expected)).sum::<u64>();
    }
    (nodes(subject) > 1).then(|| 1.0 - unexpected as f64 / subject.count() as f64)
}
