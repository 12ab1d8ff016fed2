//! The history of a resource under the hammer, and its violations.

use std::collections::HashMap;

use anyhow::{Context, ensure};
use serde::Serialize;

/// An acknowledged write of one resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) token: u64,
    /// The state that it made. No two writes make the same state.
    pub(super) state: u64,
    /// The state that it replaced; 0 for the first write.
    pub(super) replaced: u64,
}

/// A read after a claim, in the same transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) token: u64,
    pub(super) state: u64,
}

/// All acknowledged writes and reads of one resource.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) writes: Vec<Write>,
    pub(super) reads: Vec<Read>,
    /// The increments that the resource has at the end.
    pub(super) increments: u64,
}

/// How often each thing happened that the fence must prevent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Violations {
    /// Writes that were committed after a write with a higher token.
    pub(super) stale_writes: usize,
    /// Reads after a claim whose state was then changed by a write with a lower token.
    pub(super) overtaken_reads: usize,
    /// Acknowledged increments that are missing at the end.
    pub(super) lost_increments: u64,
}

impl Violations {
    pub(super) fn any(&self) -> bool {
        *self != Self::default()
    }
}

impl std::ops::AddAssign for Violations {
    fn add_assign(&mut self, other: Self) {
        self.stale_writes += other.stale_writes;
        self.overtaken_reads += other.overtaken_reads;
        self.lost_increments += other.lost_increments;
    }
}

impl History {
    /// Counts the violations.
    ///
    /// # Errors
    /// If the writes don't form one chain, so that their order is unknown.
    pub(super) fn violations(&self) -> anyhow::Result<Violations> {
        let tokens = self.tokens_in_commit_order()?;
        // The lowest token of this write and all later ones, for each place in the order.
        let mut lowest_from = vec![u64::MAX; tokens.len() + 1];
        for place in (0..tokens.len()).rev() {
            lowest_from[place] = lowest_from[place + 1].min(tokens[place].1);
        }
        let place_after: HashMap<u64, usize> =
            tokens.iter().zip(1..).map(|((state, _), place)| (*state, place)).collect();

        let mut overtaken_reads = 0;
        for read in &self.reads {
            let next = match read.state {
                0 => 0,
                state => {
                    *place_after.get(&state).context("a read saw a state that no write made")?
                }
            };
            overtaken_reads += usize::from(lowest_from[next] < read.token);
        }
        let mut highest = 0;
        let mut stale_writes = 0;
        for (_, token) in &tokens {
            stale_writes += usize::from(*token < highest);
            highest = highest.max(*token);
        }
        let acknowledged = tokens.len() as u64;
        let lost_increments = acknowledged
            .checked_sub(self.increments)
            .context("there are increments that were not acknowledged")?;
        Ok(Violations { stale_writes, overtaken_reads, lost_increments })
    }

    /// Returns each write's state and token. Each write follows the write whose state it replaced.
    fn tokens_in_commit_order(&self) -> anyhow::Result<Vec<(u64, u64)>> {
        let mut next: HashMap<u64, &Write> = HashMap::new();
        for write in &self.writes {
            ensure!(next.insert(write.replaced, write).is_none(), "two writes replaced one state");
        }
        let mut tokens = Vec::new();
        let mut state = 0;
        while let Some(write) = next.remove(&state) {
            tokens.push((write.state, write.token));
            state = write.state;
        }
        ensure!(next.is_empty(), "there was a write that was not acknowledged");
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(tokens: &[u64], reads: &[(u64, u64)], increments: u64) -> History {
        let mut writes: Vec<_> = (1..)
            .zip(tokens)
            .map(|(state, &token)| Write { token, state, replaced: state - 1 })
            .collect();
        // Clients report their writes in any order.
        writes.reverse();
        let reads = reads.iter().map(|&(token, state)| Read { token, state });
        History { writes, reads: reads.collect(), increments }
    }

    #[test]
    fn growing_tokens_and_undisturbed_reads_are_no_violations() {
        let fine = history(&[33, 33, 34, 36], &[(33, 0), (34, 2), (35, 3), (36, 4)], 4);
        assert_eq!(fine.violations().unwrap(), Violations::default());
    }

    #[test]
    fn each_violation_is_counted() {
        let stale = history(&[35, 33, 34, 35], &[], 4).violations().unwrap();
        assert_eq!(stale, Violations { stale_writes: 2, ..Default::default() });
        let overtaken = history(&[33, 34], &[(34, 0), (34, 1), (35, 1)], 2).violations().unwrap();
        assert_eq!(overtaken, Violations { overtaken_reads: 2, ..Default::default() });
        let lost = history(&[33, 34], &[], 1).violations().unwrap();
        assert_eq!(lost, Violations { lost_increments: 1, ..Default::default() });
    }

    #[test]
    fn a_history_with_a_gap_or_a_fork_is_an_error() {
        let mut gap = history(&[33, 34, 35], &[], 3);
        gap.writes.remove(1);
        gap.violations().unwrap_err();
        let mut fork = history(&[33, 34], &[], 2);
        fork.writes.push(Write { token: 35, state: 7, replaced: 1 });
        fork.violations().unwrap_err();
        history(&[33], &[(33, 7)], 1).violations().unwrap_err();
        history(&[33], &[], 2).violations().unwrap_err();
    }
}
