//! Locks in a service that makes each answer durable, beside the least that the service can do.

use std::{
    num::{NonZeroU64, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use lock_client::Order::{Fair, Unordered};
use serde_json::json;

use super::{
    Amounts, FEW, HOLD,
    handover::Rest,
    held_leases::HeldLeases,
    ours::Ours,
    service::{About, Durable},
    slow_commits,
};
use crate::bench::{
    goal::Goal,
    report::{Report, Rows},
    subject::{Subject, Times, measure},
    work::Work,
};

// The numbers of some subjects.
const LEAST: usize = 0;
const OURS: usize = 1;

/// What is measured of one service.
pub(super) struct DurableBench {
    pub(super) service: Arc<dyn Durable>,
    pub(super) amounts: Amounts,
    pub(super) rounds: usize,
}

impl DurableBench {
    /// Measures a service whose commits are slow, for the run that made them slow.
    pub(super) async fn measure_for_parent(&self) -> anyhow::Result<Report> {
        let mut report = Report::default();
        self.measure(&mut report).await?;
        report.value("text", report.text.clone());
        Ok(report)
    }

    /// Measures a service, and then once more with slow commits.
    pub(super) async fn measure_twice(&self) -> anyhow::Result<Report> {
        let Self { service, amounts, rounds } = self;
        let mut report = Report::default();
        let About { name, title, command, .. } = service.about();
        report.value("service", name);
        report.value("rounds", rounds);
        report.value("command", command);
        report.line(format_args!("Locks in {title}; each kind in one thread; {rounds} rounds"));
        report.line(format_args!(
            "commands: {command}, in the mean; round trips: halves of the least\n"
        ));
        self.measure(&mut report).await?;
        let held_for = Duration::from_secs(amounts.seconds.map_or(30, NonZeroU64::get));
        let leases = amounts.leases.get();
        let leases =
            HeldLeases::measure(&**service, leases, held_for, held_for, Work::all_calls).await?;
        report.value("leases", &leases);
        report.line(&leases);
        match slow_commits::strace() {
            Ok(strace) => {
                let arguments = [
                    format!("--service={name}"),
                    format!("--rounds={rounds}"),
                    format!("--acquires={}", self.acquires()),
                    format!("--handovers={}", self.handovers()),
                    format!("--waiters={}", amounts.waiters),
                ];
                let (text, json) = slow_commits::measure(strace, &arguments)?;
                report.line("The same, if each commit takes 2 ms longer:\n");
                report.line(text);
                report.value("slow_commits", json);
            }
            Err(error) => {
                report.line(format_args!("Not measured with slow commits: {error}"));
                report.value("slow_commits", json!({ "because": error.to_string() }));
            }
        }
        Ok(report)
    }

    fn acquires(&self) -> usize {
        self.amounts.acquires.map_or(500, NonZeroUsize::get)
    }

    fn handovers(&self) -> usize {
        self.amounts.handovers.map_or(100, NonZeroUsize::get)
    }

    async fn measure(&self, report: &mut Report) -> anyhow::Result<()> {
        let Self { service, amounts, rounds } = self;
        let ours = Ours::new(service.clone(), 1)?;
        let (acquires, many) = (self.acquires(), amounts.waiters.get());
        let mut subjects = service.beside(acquires);
        subjects.insert(OURS, ours.cycles("acquire, token, release", acquires));
        let uncontended = subjects.len();
        for waiters in [FEW, many] {
            for (order, fair) in [(Unordered, ""), (Fair, ", fair")] {
                let title = format!("{waiters} wait{fair}");
                let rest = Rest::Busy(HOLD);
                subjects.push(ours.handovers(title, self.handovers(), waiters, order, rest));
            }
        }
        measure(service.about().title, &mut subjects, *rounds).await?;

        let least = &subjects[LEAST];
        let (uncontended, handovers) = subjects.split_at(uncontended);
        report.table(
            Rows::new("uncontended", uncontended)
                .times("uncontended, one after the other")
                .figure("p50 of least", "p50_of_least", 2, |subject| Some(subject.ratio(least)))
                .figure("commands", "commands", 2, |subject| subject.mean(Work::all_calls)),
        );
        report.table(
            Rows::new("handovers", handovers)
                .times("handover")
                .figure("p50 round trips", "p50_of_least", 2, |subject| {
                    Some(2.0 * subject.ratio(least))
                })
                .figure("commands", "commands", 2, |subject| subject.mean(Work::all_calls)),
        );
        let bound = service.about().goal_of_least;
        let of_least = subjects[OURS].ratio(least);
        let mut goals =
            vec![Goal::at_most("acquire, token, release of the least", bound, of_least)];
        goals.extend(handovers.iter().map(|subject| {
            let goal = format!("handover, {}: p50 in round trips of the least", subject.name());
            Goal::at_most(goal, 3.0, 2.0 * subject.ratio(least))
        }));
        let commands = |subject: &Subject<'_, Times>| subject.mean(Work::all_calls);
        for (number, kind) in ["handover", "fair handover"].into_iter().enumerate() {
            let ratio = commands(&handovers[2 + number])
                .zip(commands(&handovers[number]))
                .map_or(f64::NAN, |(many, few)| many / few);
            goals.push(Goal::at_most(
                format!("commands per {kind}, {many} wait of {FEW}"),
                1.1,
                ratio,
            ));
        }
        report.goals(&goals);
        Ok(())
    }
}
