//! Checks every state of a model of changing members, with the given limits: `make model`.

use std::{process::ExitCode, thread};

use clap::{Parser, ValueEnum};
use redlock_model::change::{
    AdmissionRule, Change, ChangeId, CloseRule, Config, CopyRule, DecisionRule, MissedRule,
    PromiseRule, Rules, SourceRule, VoteRule, WaitRule, check,
};

/// Checks every state of a model of changing members
///
/// Exits with 1 if a state violates a property.
#[derive(Debug, Parser)]
struct Limits {
    /// What the operators do
    #[arg(long, value_enum, default_value_t = Scenario::Replacement)]
    scenario: Scenario,
    /// How many ballots each operator may start
    #[arg(long, default_value_t = 1)]
    ballots: u8,
    /// The number of clients, with one round each
    #[arg(long, default_value_t = 2, value_parser = 0..=2)]
    clients: i64,
    /// Each round takes many steps
    #[arg(long)]
    stepwise_acquires: bool,
    /// Leases are renewed, and join free nodes
    #[arg(long)]
    renewals: bool,
    /// Releases raise counters
    #[arg(long)]
    releases: bool,
    /// Locks expire only with their lease, so leases must exclude each other
    #[arg(long)]
    exclusive: bool,
    /// The limit of every counter
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=30))]
    highest_counter: u8,
    /// How many restarts of nodes there may be in all
    #[arg(long, default_value_t = 0)]
    restarts: u8,
    /// A restart may bring back an old copy of a node
    #[arg(long)]
    old_copies: bool,
    /// Break a rule of the protocol
    #[arg(long = "break", value_enum)]
    broken: Vec<BrokenRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Node 3 replaces node 1
    Replacement,
    /// Nodes 3 and 4 are added
    Growth,
    /// One operator replaces node 2 by node 3, and another node 1 by node 3
    TwoReplacements,
    /// One operator replaces node 2 by node 3, and another adds nodes 3 and 4
    ReplacementAndGrowth,
    /// A removed node comes back two epochs later
    ComesBack,
}

const START: Change = Change { base: 0, members: &[0, 1, 2] };
const REPLACES_2: Change = Change { base: 0, members: &[0, 1, 3] };
const REPLACES_1: Change = Change { base: 0, members: &[0, 2, 3] };
const GROWS: Change = Change { base: 0, members: &[0, 1, 2, 3, 4] };
const COMES_BACK: Change = Change { base: 1, members: &[0, 2, 3] };

impl Scenario {
    fn changes(self) -> (&'static [Change], &'static [ChangeId]) {
        match self {
            Self::Replacement => (&[START, REPLACES_1], &[1]),
            Self::Growth => (&[START, GROWS], &[1]),
            Self::TwoReplacements => (&[START, REPLACES_2, REPLACES_1], &[1, 2]),
            Self::ReplacementAndGrowth => (&[START, REPLACES_2, GROWS], &[1, 2]),
            Self::ComesBack => (&[START, REPLACES_2, COMES_BACK], &[1, 2]),
        }
    }

    /// Whether two operators decide the same epoch.
    fn needs_promises(self) -> bool {
        matches!(self, Self::TwoReplacements | Self::ReplacementAndGrowth)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BrokenRule {
    VoteIgnoresChange,
    VoteCountsRemoved,
    ProposesItsOwn,
    NoPromise,
    PromisesNotReadAgain,
    ClosePromisedNodes,
    CloseAnyNode,
    DecisionUnderAnyBallot,
    DecisionNotReadAgain,
    DecisionByFewer,
    WaitFromProposal,
    NoWaitIfMissed,
    NoWait,
    CopyBeforeTheWait,
    CopyBeforeTheClose,
    SourcesOfAnyChange,
    FewerSources,
    AdmissionIgnoresProcess,
    AdmissionForgetsBallot,
    AdmissionForgetsPromise,
    MissedClosesDirectly,
}

impl BrokenRule {
    fn apply(self, rules: &mut Rules) {
        match self {
            Self::VoteIgnoresChange => rules.vote = VoteRule::IgnoresChange,
            Self::VoteCountsRemoved => rules.vote = VoteRule::CountsRemoved,
            Self::ProposesItsOwn => rules.promise = PromiseRule::ProposesItsOwn,
            Self::NoPromise => rules.promise = PromiseRule::NoPromise,
            Self::PromisesNotReadAgain => rules.promise = PromiseRule::NotReadAgain,
            Self::ClosePromisedNodes => rules.close = CloseRule::PromisedNodes,
            Self::CloseAnyNode => rules.close = CloseRule::AnyNode,
            Self::DecisionUnderAnyBallot => rules.decision = DecisionRule::AnyBallot,
            Self::DecisionNotReadAgain => rules.decision = DecisionRule::NotReadAgain,
            Self::DecisionByFewer => rules.decision = DecisionRule::FewerThanMajority,
            Self::WaitFromProposal => rules.wait = WaitRule::FromProposal,
            Self::NoWaitIfMissed => rules.wait = WaitRule::NotIfMissed,
            Self::NoWait => rules.wait = WaitRule::NoWait,
            Self::CopyBeforeTheWait => rules.copy = CopyRule::BeforeTheWait,
            Self::CopyBeforeTheClose => rules.copy = CopyRule::BeforeTheClose,
            Self::SourcesOfAnyChange => rules.sources = SourceRule::AnyChange,
            Self::FewerSources => rules.sources = SourceRule::FewerThanMajority,
            Self::AdmissionIgnoresProcess => rules.admission = AdmissionRule::IgnoresProcess,
            Self::AdmissionForgetsBallot => rules.admission = AdmissionRule::ForgetsBallot,
            Self::AdmissionForgetsPromise => rules.admission = AdmissionRule::ForgetsPromise,
            Self::MissedClosesDirectly => rules.missed = MissedRule::ClosesDirectly,
        }
    }
}

impl Limits {
    fn config(&self) -> Config {
        let (changes, proposals) = self.scenario.changes();
        let mut rules = Rules::PROTOCOL;
        if !self.scenario.needs_promises() {
            rules.promise = PromiseRule::NoPromise;
        }
        self.broken.iter().for_each(|rule| rule.apply(&mut rules));
        Config {
            changes,
            proposals,
            ballots: [self.ballots; 3],
            clients: self.clients as usize,
            atomic_acquires: !self.stepwise_acquires,
            renewals: self.renewals,
            releases: self.releases,
            early_expiry: !self.exclusive,
            highest_counter: self.highest_counter,
            restarts: self.restarts,
            old_copies: self.old_copies,
            rules,
        }
    }
}

fn main() -> ExitCode {
    let config = Limits::parse().config();
    let report = check(config, thread::available_parallelism().map_or(1, usize::from));
    print!("{report}");
    if report.violated().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
