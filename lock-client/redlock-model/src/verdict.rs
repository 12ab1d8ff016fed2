//! Checks all states of a model, and says what was found.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{action::Action, config::Config, model::Redlock, properties::ALWAYS};

/// What was found in the states of a model.
#[derive(Debug)]
pub struct Verdict {
    /// How many states there are, or were looked at until something was broken.
    pub states: usize,
    /// How many steps the longest of the ways to them has.
    pub depth: usize,
    /// How long that took.
    pub took: Duration,
    /// By the names of the properties, the steps to where one that has to hold always doesn't, or to
    /// where one that has to hold sometimes does.
    pub found: BTreeMap<&'static str, Vec<Action>>,
}

/// Looks at every state, unless one breaks a property.
pub fn check(config: Config, threads: usize) -> Verdict {
    let begun = Instant::now();
    let checker = Redlock::new(config)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(threads)
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter();
    Verdict {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: begun.elapsed(),
        found: found.map(|(name, path)| (name, path.into_actions())).collect(),
    }
}

impl Verdict {
    /// The properties that don't hold, of those that have to hold always.
    pub fn broken(&self) -> Vec<&'static str> {
        ALWAYS.into_iter().filter(|name| self.found.contains_key(name)).collect()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, depth, took, found } = self;
        writeln!(f, "{states} states, at most {depth} steps deep, in {took:.1?}")?;
        for (name, steps) in found {
            let verdict = if ALWAYS.contains(name) { "BROKEN" } else { "reached" };
            writeln!(f, "{verdict}: {name}, after {} steps", steps.len())?;
        }
        for name in self.broken() {
            writeln!(f, "\nhow it is broken that {name}:")?;
            self.found[name].iter().try_for_each(|step| writeln!(f, "  {step:?}"))?;
        }
        Ok(())
    }
}
