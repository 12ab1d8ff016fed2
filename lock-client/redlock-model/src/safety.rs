//! Checks that no state of a model violates a safety property.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{action::Action, config::Config, model::Redlock, properties::SAFETY};

/// The result of [`check_safety`].
#[derive(Debug)]
pub struct SafetyReport {
    /// The number of states, or of those explored before a property was violated.
    pub states: usize,
    /// The length of the longest path of steps to a state.
    pub depth: usize,
    /// How long the check took.
    pub took: Duration,
    /// Steps by property or situation: to a state that violates the property, or to one in which
    /// the situation occurs.
    pub found: BTreeMap<&'static str, Vec<Action>>,
}

/// Explores every state of a model, or stops at a violated property.
///
/// With one thread, the reported steps are the fewest that lead there.
pub fn check_safety(config: Config, threads: usize) -> SafetyReport {
    let started = Instant::now();
    let checker = Redlock::new(config)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(threads)
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter();
    SafetyReport {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: started.elapsed(),
        found: found.map(|(name, path)| (name, path.into_actions())).collect(),
    }
}

impl SafetyReport {
    /// The safety properties that a state violates.
    pub fn violated(&self) -> Vec<&'static str> {
        SAFETY.into_iter().filter(|name| self.found.contains_key(name)).collect()
    }
}

impl fmt::Display for SafetyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, depth, took, found } = self;
        writeln!(f, "{states} states, at most {depth} steps deep, in {took:.1?}")?;
        for (name, steps) in found {
            let verb = if SAFETY.contains(name) { "VIOLATED" } else { "reached" };
            writeln!(f, "{verb} after {} steps: {name}", steps.len())?;
        }
        for name in self.violated() {
            writeln!(f, "\nsteps that violate \"{name}\":")?;
            self.found[name].iter().try_for_each(|step| writeln!(f, "  {step:?}"))?;
        }
        Ok(())
    }
}
