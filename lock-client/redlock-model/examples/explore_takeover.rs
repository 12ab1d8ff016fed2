//! Checks every state of a model of takeovers with the given limits, on all cores: `make model`.

use std::{process::ExitCode, thread};

use clap::Parser;
use redlock_model::takeover::{Config, Fault, check};

/// Checks every state of a model in which processes take the seats of others
///
/// Exits with 1 if a state violates a property.
#[derive(Debug, Parser)]
struct Limits {
    /// The number of seats: 3 or 5
    #[arg(long, default_value_t = 3)]
    seats: u8,
    /// How many new processes may start
    #[arg(long, default_value_t = 1)]
    starts: u8,
    /// The highest term
    #[arg(long, default_value_t = 2)]
    highest_term: u8,
    /// A new process may start with a copy of the old data
    #[arg(long)]
    clones: bool,
    /// The number of operators
    #[arg(long, default_value_t = 1)]
    operators: u8,
    /// The number of clients
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=3))]
    clients: u8,
    /// Leases are renewed, and join free nodes
    #[arg(long)]
    renewals: bool,
    /// An ended lease may be renewed once
    #[arg(long)]
    late_renewals: bool,
    /// Locks expire only with their leases
    #[arg(long)]
    exclusive: bool,
    /// The limit of every counter
    #[arg(long, default_value_t = 2)]
    highest_counter: u8,
    /// Break a rule
    #[arg(long = "break", value_parser = parse_fault)]
    broken: Option<Fault>,
}

fn parse_fault(name: &str) -> Result<Fault, String> {
    let fault = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
    fault.ok_or_else(|| format!("one of {:?}", Fault::ALL))
}

fn main() -> ExitCode {
    let limits = Limits::parse();
    let config = Config {
        seats: limits.seats,
        starts: limits.starts,
        highest_term: limits.highest_term,
        clones: limits.clones,
        operators: limits.operators,
        clients: limits.clients,
        renewals: limits.renewals,
        late_renewals: limits.late_renewals,
        early_expiry: !limits.exclusive,
        highest_counter: limits.highest_counter,
        fault: limits.broken,
    };
    let report = check(config, thread::available_parallelism().map_or(1, usize::from));
    print!("{report}");
    if report.violated().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
