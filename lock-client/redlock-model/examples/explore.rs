//! Checks every state of models that are too large for a test, on all cores: `make model`.
//!
//! Exits with 1 if a state violates a property.

use std::{fmt::Debug, process::ExitCode, thread};

use redlock_model::{Config, Explore, takeover};

const THREE_CLIENTS: Config = Config { clients: 3, ..Config::TWO_CLIENTS };
const REISSUES: Config = Config { reissues: 1, highest_initial_counter: 0, ..Config::TWO_CLIENTS };
const JOINS: Config = Config { atomic_acquires: true, joins: true, ..Config::TWO_CLIENTS };
/// Two processes have one lease.
const SHARED: Config =
    Config { clients: 3, atomic_acquires: true, adopts: true, renewals: true, ..REISSUES };
const FIVE_NODES: Config = Config { nodes: 5, highest_initial_counter: 0, ..JOINS };

const TAKEOVER: takeover::Config = takeover::Config { clients: 2, ..takeover::Config::ONE_START };

fn main() -> ExitCode {
    let models = [
        THREE_CLIENTS,
        Config { late_grants: true, ..REISSUES },
        Config { renewals: true, ..REISSUES },
        // 2 714 747 states.
        SHARED,
        Config { renewals: true, reissues: 1, failed_tries: true, ..JOINS },
        Config { renewals: true, failed_tries: true, ..FIVE_NODES },
        Config { reissues: 1, ..FIVE_NODES },
    ];
    let takeovers = [
        takeover::Config { clones: true, renewals: true, late_renewals: true, ..TAKEOVER },
        takeover::Config { starts: 2, highest_term: 3, ..TAKEOVER },
        takeover::Config { seats: 5, ..TAKEOVER },
    ];
    let hold = models.into_iter().all(holds) && takeovers.into_iter().all(holds);
    if hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn holds<C: Explore + Debug>(config: C) -> bool {
    println!("{config:?}");
    let report = config.explore(thread::available_parallelism().map_or(1, usize::from));
    println!("{report}");
    report.violated.is_empty()
}
