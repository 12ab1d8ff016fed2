//! A storage in memory, with the rule of the crate `fence` or without.

use std::sync::Mutex;

use fence::{Decision, Fence, Token, decide};

/// A resource whose value is a list of appends.
#[derive(Debug)]
pub(super) struct Storage {
    rule: Rule,
    state: Mutex<State>,
}

/// Whether the storage applies the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Fenced,
    /// Everything is accepted.
    Unfenced,
}

#[derive(Debug, Default)]
struct State {
    fence: Option<Fence>,
    value: Vec<usize>,
}

/// A rejection, with the fence's token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejected(pub(super) Token);

impl Storage {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, state: Mutex::default() }
    }

    /// Claims and reads in one step.
    pub(super) fn read(&self, offered: &Fence) -> Result<Vec<usize>, Rejected> {
        let mut state = self.state.lock().unwrap();
        self.offer(&mut state, offered)?;
        Ok(state.value.clone())
    }

    pub(super) fn write(&self, offered: &Fence, value: Vec<usize>) -> Result<(), Rejected> {
        let mut state = self.state.lock().unwrap();
        self.offer(&mut state, offered)?;
        state.value = value;
        Ok(())
    }

    /// Returns the value at the end.
    pub(super) fn into_value(self) -> Vec<usize> {
        self.state.into_inner().unwrap().value
    }

    fn offer(&self, state: &mut State, offered: &Fence) -> Result<(), Rejected> {
        match decide(state.fence.as_ref(), offered) {
            Decision::Stale | Decision::HolderConflict if self.rule == Rule::Fenced => {
                let fence = state.fence.as_ref().expect("without a fence nothing is rejected");
                return Err(Rejected(fence.token));
            }
            Decision::Advance => state.fence = Some(offered.clone()),
            Decision::Accept | Decision::Stale | Decision::HolderConflict => {}
        }
        Ok(())
    }
}
