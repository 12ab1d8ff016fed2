//! Checks every state of a model with the given limits, on all cores: `make model`.
//!
//! The printed steps name nodes and clients by their numbers. With merged symmetric states, those
//! numbers would change from step to step, so `--break` turns symmetry off.

use std::{process::ExitCode, thread};

use clap::{Parser, ValueEnum};
use redlock_model::{
    Checked, Config, Delivery, MOST_CLIENTS, MOST_NODES, Rounds, check_liveness, check_safety,
    protocol::{
        AdmissionRule, ExpiryRule, FenceRule, GrantRule, JoinRule, Protocol, ReissueRule,
        ReleaseRule, RenewalRule, SealRule,
    },
};

/// Checks every state of a model of Fenced Redlock
///
/// Exits with 1 if a state violates a property.
#[derive(Debug, Parser)]
struct Limits {
    /// The number of nodes, which is odd
    #[arg(long, default_value_t = 3, value_parser = 1..=MOST_NODES as i64)]
    nodes: i64,
    /// The number of clients, with one round each
    #[arg(long, default_value_t = 3, value_parser = 1..=MOST_CLIENTS as i64)]
    clients: i64,
    /// The limit of every counter
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=30))]
    highest_counter: u8,
    /// Each counter starts anywhere from 0 to this
    #[arg(long, default_value_t = 1)]
    highest_initial_counter: u8,
    /// Each round and each reissue takes one step
    #[arg(long)]
    atomic_rounds: bool,
    /// Each round takes one step, but renewals, joins and reissues take many
    #[arg(long, conflicts_with = "atomic_rounds")]
    atomic_acquires: bool,
    /// Requests for grants are delivered any number of times, at any time
    #[arg(long)]
    late_grants: bool,
    /// How many reissues a lease may start
    #[arg(long, default_value_t = 0)]
    reissues: u8,
    /// Clients renew their leases
    #[arg(long)]
    renewals: bool,
    /// Leases join free nodes
    #[arg(long)]
    joins: bool,
    /// Failed tries of other clients raise the counters of free nodes
    #[arg(long)]
    failed_tries: bool,
    /// Clients read and write a fenced storage
    #[arg(long)]
    storage: bool,
    /// How many restarts of nodes there may be in all
    #[arg(long, default_value_t = 0)]
    restarts: u8,
    /// A restart may bring back an old copy of a node
    #[arg(long)]
    old_copies: bool,
    /// Check only that no write is lost, even if a token is issued twice
    #[arg(long)]
    writes_only: bool,
    /// Break a rule of the protocol
    #[arg(long = "break", value_enum)]
    broken: Vec<BrokenRule>,
    /// Check that a client can always acquire again, instead of the safety properties
    #[arg(long)]
    liveness: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BrokenRule {
    GrantAboveTheToken,
    NoSeal,
    SealComparesNothing,
    SealComparesHolderOnly,
    JoinSameGrant,
    JoinOwnGrant,
    JoinFloorIsIgnored,
    JoinReissueIgnoresFloor,
    JoinSameGrantOneAbove,
    JoinCountsOneAbove,
    ReissueRaisesOnly,
    ReissueIgnoresRejectedSeal,
    ReissueResendsRejectedWrite,
    RenewalReturnsTheHighest,
    AdmissionCopiesThenWaits,
    NoAdmission,
    FenceComparesTokenOnly,
    NoExpiry,
    ReleaseToKnownGranters,
}

impl BrokenRule {
    fn apply(self, protocol: &mut Protocol) {
        match self {
            Self::GrantAboveTheToken => protocol.grant = GrantRule::AboveTheToken,
            Self::NoSeal => protocol.seal = SealRule::NoSeal,
            Self::SealComparesNothing => protocol.seal = SealRule::ComparesNothing,
            Self::SealComparesHolderOnly => protocol.seal = SealRule::ComparesHolderOnly,
            Self::JoinSameGrant => protocol.join = JoinRule::SameGrant,
            Self::JoinOwnGrant => protocol.join = JoinRule::OwnGrant,
            Self::JoinFloorIsIgnored => protocol.join = JoinRule::FloorIsIgnored,
            Self::JoinReissueIgnoresFloor => protocol.join = JoinRule::ReissueIgnoresFloor,
            Self::JoinSameGrantOneAbove => protocol.join = JoinRule::SameGrantOneAbove,
            Self::JoinCountsOneAbove => protocol.join = JoinRule::CountsOneAbove,
            Self::ReissueRaisesOnly => protocol.reissue = ReissueRule::RaisesOnly,
            Self::ReissueIgnoresRejectedSeal => {
                protocol.reissue = ReissueRule::IgnoresRejectedSeal;
            }
            Self::ReissueResendsRejectedWrite => {
                protocol.reissue = ReissueRule::ResendsRejectedWrite;
            }
            Self::RenewalReturnsTheHighest => {
                protocol.renewal = RenewalRule::ReturnsTheHighest;
            }
            Self::AdmissionCopiesThenWaits => {
                protocol.admission = AdmissionRule::CopiesThenWaits;
            }
            Self::NoAdmission => protocol.admission = AdmissionRule::NoAdmission,
            Self::FenceComparesTokenOnly => protocol.fence = FenceRule::ComparesTokenOnly,
            Self::NoExpiry => protocol.expiry = ExpiryRule::Never,
            Self::ReleaseToKnownGranters => protocol.release = ReleaseRule::ToKnownGranters,
        }
    }
}

impl Limits {
    fn rounds(&self) -> Rounds {
        if self.atomic_rounds {
            Rounds::Atomic
        } else if self.atomic_acquires {
            Rounds::AtomicAcquires
        } else {
            Rounds::StepByStep
        }
    }

    fn config(&self) -> Config {
        let mut protocol = Protocol::AS_BUILT;
        self.broken.iter().for_each(|rule| rule.apply(&mut protocol));
        Config {
            nodes: self.nodes as usize,
            clients: self.clients as usize,
            highest_counter: self.highest_counter,
            highest_initial_counter: self.highest_initial_counter,
            rounds: self.rounds(),
            grant_requests: if self.late_grants { Delivery::Anytime } else { Delivery::Once },
            reissues: self.reissues,
            renewals: self.renewals,
            joins: self.joins,
            failed_tries: self.failed_tries,
            storage: self.storage,
            restarts: self.restarts,
            old_copies: self.old_copies,
            checked: if self.writes_only { Checked::WritesOnly } else { Checked::TokensAndWrites },
            protocol,
            symmetry: self.broken.is_empty(),
        }
    }
}

fn main() -> ExitCode {
    let limits = Limits::parse();
    let config = limits.config();
    let holds = if limits.liveness {
        let report = check_liveness(config);
        println!("{report:#?}");
        report.stuck == 0
    } else {
        let report = check_safety(config, thread::available_parallelism().map_or(1, usize::from));
        print!("{report}");
        report.violated().is_empty()
    };
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
