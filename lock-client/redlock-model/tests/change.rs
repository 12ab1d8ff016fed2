//! Members that change, while clients acquire and renew.

mod ballot;
mod replace;
mod sequence;

use redlock_model::change::{
    Change, Config, MOST_PROPOSERS, PromiseRule, Rules, SAFETY, Situation, check,
};

/// Three members. Node 3 replaces node 2, or node 1.
const REPLACEMENTS: &[Change] = &[
    Change { base: 0, members: &[0, 1, 2] },
    Change { base: 0, members: &[0, 1, 3] },
    Change { base: 0, members: &[0, 2, 3] },
];

/// A single proposer asks for no promise: they matter only between several.
const ALONE: Rules = Rules { promise: PromiseRule::NoPromise, ..Rules::PROTOCOL };

/// One operator replaces node 1. Two clients acquire in one step each.
const REPLACEMENT: Config = Config {
    changes: REPLACEMENTS,
    proposals: &[2],
    ballots: [1; MOST_PROPOSERS],
    clients: 2,
    atomic_acquires: true,
    renewals: false,
    releases: false,
    early_expiry: true,
    highest_counter: 2,
    restarts: 0,
    old_copies: false,
    rules: ALONE,
};

/// Asserts that no state violates a safety property.
///
/// The model must also have at least so many states, and the given situations must occur.
#[track_caller]
fn assert_holds(config: Config, states: usize, situations: &[Situation]) {
    let report = check(config, 1);
    println!("{report}");
    assert!(report.violated().is_empty(), "{report}");
    assert!(report.states >= states, "only {} states", report.states);
    for situation in situations {
        let name = situation.name();
        assert!(report.found.contains_key(name), "never reached: {name}");
    }
}

/// Asserts that a model violates a safety property, and that this takes exactly so many steps.
#[track_caller]
fn assert_violates(config: Config, property: &str, steps: usize) {
    let report = check(config, 1);
    println!("{report}");
    assert!(SAFETY.contains(&property));
    let found = report.found.get(property).unwrap_or_else(|| panic!("not violated: {report}"));
    assert_eq!(found.len(), steps, "{report}");
}
