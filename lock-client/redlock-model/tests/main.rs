//! What holds in every state of the models, and which variants break it.
//!
//! Each model is checked on one thread: the tests themselves run at the same time, and the ways found
//! are the shortest.

mod acquire;
mod admission;
mod liveness;
mod reissue;
mod storage;

use redlock_model::{Config, check};

/// Checks that a model breaks nothing, and that it is worth that: it has so many states at least, and
/// reaches the situations in which something might break.
#[track_caller]
fn assert_holds(config: Config, states: usize, situations: &[&'static str]) {
    let verdict = check(config, 1);
    println!("{verdict}");
    assert!(verdict.broken().is_empty(), "{verdict}");
    assert!(verdict.states >= states, "only {} states", verdict.states);
    for situation in situations {
        assert!(verdict.found.contains_key(situation), "never: {situation}");
    }
}

/// Checks that a model breaks a property, after so many steps at the soonest.
#[track_caller]
fn assert_breaks(config: Config, property: &str, steps: usize) {
    let verdict = check(config, 1);
    println!("{verdict}");
    let found = verdict.found.get(property).unwrap_or_else(|| panic!("not broken: {verdict}"));
    assert!(verdict.broken().contains(&property));
    assert_eq!(found.len(), steps, "{verdict}");
}
