//! What holds in every state of the models, and which broken rules violate it.
//!
//! Each model is checked on one thread. So the reported steps are the fewest, and several tests can
//! run at the same time.

mod acquire;
mod join;
mod liveness;
mod reissue;
mod storage;
mod takeover;

use redlock_model::Explore;

/// Asserts that no state violates a safety property.
///
/// The model must also have at least so many states, and the given situations must occur: otherwise
/// it might hold only because too little happens in it. The number of states is always the same.
/// The bound lies just below it, for the sake of changes that merge a few more states.
#[track_caller]
fn assert_holds<C: Explore>(config: C, states: usize, situations: &[C::Situation]) {
    let report = config.explore(1);
    println!("{report}");
    assert!(report.violated.is_empty(), "{report}");
    assert!(report.states >= states, "only {} states", report.states);
    for situation in situations {
        assert!(report.occurred.contains(situation), "never reached: {situation:?}");
    }
}

/// Asserts that each broken rule violates a safety property, and that this takes exactly so many steps.
#[track_caller]
fn assert_controls<C: Explore>(controls: &[(C, C::Fault, &str, usize)]) {
    let missed = controls.iter().filter_map(|(config, fault, property, steps)| {
        let report = config.with_fault(*fault).explore(1);
        println!("{fault:?}: {report}");
        let is_found = report.violated.contains(property) && report.steps.len() == *steps;
        (!is_found).then(|| format!("{fault:?}: not {property} after {steps} steps, but {report}"))
    });
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
