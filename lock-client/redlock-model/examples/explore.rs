//! Looks at all states of a model that is given by its limits, on all cores: `make model`.
//!
//! A way to where something breaks is told with the numbers that nodes and clients have on that way, if
//! states are not merged by symmetry: with `--break`, they aren't.

use std::{process::ExitCode, thread};

use clap::{Parser, ValueEnum};
use redlock_model::{
    Config, Grants, Judged, MOST_CLIENTS, Rounds, Variant, check, check_liveness,
    variant::{Admission, Binding, Expiry, Reissue, Release, Seal},
};

/// Looks at all states of a model of Fenced Redlock, of three nodes
///
/// Exits with 1 if something is broken.
#[derive(Debug, Parser)]
struct Limits {
    /// How many clients there are, with one round each
    #[arg(long, default_value_t = 3, value_parser = 1..=MOST_CLIENTS as i64)]
    clients: i64,
    /// The number that no counter passes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=30))]
    highest_counter: u8,
    /// The counters start anywhere between 0 and this
    #[arg(long, default_value_t = 1)]
    uneven_start: u8,
    /// Rounds and reissues take one step
    #[arg(long)]
    at_once: bool,
    /// Grants are delivered as late and as often as the network likes
    #[arg(long)]
    late_grants: bool,
    /// How many reissues a lease may begin
    #[arg(long, default_value_t = 0)]
    reissues: u8,
    /// Leases are renewed
    #[arg(long)]
    renewals: bool,
    /// There is a storage
    #[arg(long)]
    storage: bool,
    /// How many restarts of nodes there may be
    #[arg(long, default_value_t = 0)]
    restarts: u8,
    /// Only lost writes count, not tokens that are told twice
    #[arg(long)]
    writes_only: bool,
    /// What of the protocol is not as it is built
    #[arg(long = "break", value_enum)]
    broken: Vec<Break>,
    /// Look for states without a way to acquire instead
    #[arg(long)]
    liveness: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Break {
    NoSeal,
    SealUnchecked,
    SealComparesHolderAlone,
    ReissueUnsealed,
    ReissueResends,
    AdmissionCopiesThenWaits,
    NoAdmission,
    NoBinding,
    NoExpiry,
    ReleaseToHeardOf,
}

impl Break {
    fn apply(self, variant: &mut Variant) {
        match self {
            Self::NoSeal => variant.seal = Seal::None,
            Self::SealUnchecked => variant.seal = Seal::Unchecked,
            Self::SealComparesHolderAlone => variant.seal = Seal::HolderAlone,
            Self::ReissueUnsealed => variant.reissue = Reissue::Unsealed,
            Self::ReissueResends => variant.reissue = Reissue::Resends,
            Self::AdmissionCopiesThenWaits => variant.admission = Admission::CopiesThenWaits,
            Self::NoAdmission => variant.admission = Admission::None,
            Self::NoBinding => variant.binding = Binding::None,
            Self::NoExpiry => variant.expiry = Expiry::Never,
            Self::ReleaseToHeardOf => variant.release = Release::ToHeardOf,
        }
    }
}

impl Limits {
    fn config(&self) -> Config {
        let mut variant = Variant::AS_BUILT;
        self.broken.iter().for_each(|broken| broken.apply(&mut variant));
        Config {
            clients: self.clients as usize,
            highest_counter: self.highest_counter,
            uneven_start: self.uneven_start,
            rounds: if self.at_once { Rounds::AtOnce } else { Rounds::StepByStep },
            grants: if self.late_grants { Grants::Anytime } else { Grants::Once },
            reissues: self.reissues,
            renewals: self.renewals,
            storage: self.storage,
            restarts: self.restarts,
            judged: if self.writes_only { Judged::Writes } else { Judged::All },
            variant,
            symmetry: self.broken.is_empty(),
        }
    }
}

fn main() -> ExitCode {
    let limits = Limits::parse();
    let config = limits.config();
    let sound = if limits.liveness {
        let liveness = check_liveness(config);
        println!("{liveness:#?}");
        liveness.stuck == 0
    } else {
        let verdict = check(config, thread::available_parallelism().map_or(1, usize::from));
        print!("{verdict}");
        verdict.broken().is_empty()
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
