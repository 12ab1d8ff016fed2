//! What holds in every state of the models, and which broken rules violate it.
//!
//! Each model is checked on one thread. So the reported steps are the fewest, and several tests can
//! run at the same time.

mod acquire;
mod admission;
mod join;
mod liveness;
mod reissue;
mod storage;
mod takeover;

use redlock_model::{Config, check_safety, properties::Situation};

/// Asserts that no state violates a safety property.
///
/// The model must also have at least so many states, and the given situations must occur: otherwise
/// it might hold only because too little happens in it. The number of states is always the same.
/// The bound lies just below it, for the sake of changes that merge a few more states.
#[track_caller]
fn assert_holds(config: Config, states: usize, situations: &[Situation]) {
    let report = check_safety(config, 1);
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
    let report = check_safety(config, 1);
    println!("{report}");
    let found = report.found.get(property).unwrap_or_else(|| panic!("not violated: {report}"));
    assert!(report.violated().contains(&property));
    assert_eq!(found.len(), steps, "{report}");
}
