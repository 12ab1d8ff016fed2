//! The history of a resource under the hammer, and its violations.

use std::collections::HashMap;

use anyhow::{Context, ensure};
use serde::Serialize;

/// How the order of writes is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The database reports which state each write replaced.
    #[default]
    Replaced,
    /// States are versions, which grow.
    Versions,
}

/// An acknowledged write of one resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) token: u64,
    /// The state that it made. No two writes make the same state, unless one was lost.
    pub(super) state: u64,
    /// The state that it replaced; 0 for the first write, and in the order of versions.
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
    pub(super) order: Order,
    /// The writes that may have been committed.
    pub(super) unknown: usize,
    /// How often the resource was older than a client had seen it, or gone.
    pub(super) lost: usize,
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
    /// Acknowledged writes that made the same version as another, so that one of the two was lost.
    pub(super) forked_writes: usize,
    /// Resources that were older than a client had seen them, or gone.
    pub(super) lost_resources: usize,
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
        self.forked_writes += other.forked_writes;
        self.lost_resources += other.lost_resources;
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
            let next = match (self.order, read.state) {
                (Order::Versions, version) => tokens.partition_point(|(made, _)| *made <= version),
                (Order::Replaced, 0) => 0,
                (Order::Replaced, state) => {
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
        let forked_writes = tokens.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
        let acknowledged = tokens.len() as u64;
        ensure!(
            self.increments <= acknowledged + (self.unknown + self.lost) as u64,
            "there are increments that were not acknowledged"
        );
        let lost_increments = acknowledged.saturating_sub(self.increments);
        let lost_resources = self.lost;
        Ok(Violations {
            stale_writes,
            overtaken_reads,
            forked_writes,
            lost_resources,
            lost_increments,
        })
    }

    /// Returns each write's state and token. Each write follows the write whose state it replaced, or
    /// that made an earlier version.
    fn tokens_in_commit_order(&self) -> anyhow::Result<Vec<(u64, u64)>> {
        if self.order == Order::Versions {
            let mut tokens: Vec<_> =
                self.writes.iter().map(|write| (write.state, write.token)).collect();
            tokens.sort_unstable();
            return Ok(tokens);
        }
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
        History { writes, reads: reads.collect(), increments, ..History::default() }
    }

    fn versions(writes: &[(u64, u64)], reads: &[(u64, u64)], increments: u64) -> History {
        let writes = writes.iter().map(|&(token, state)| Write { token, state, replaced: 0 });
        let reads = reads.iter().map(|&(token, state)| Read { token, state });
        let (writes, reads) = (writes.collect(), reads.collect());
        History { writes, reads, increments, order: Order::Versions, ..History::default() }
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

    /// Claims make versions, too: a read may see one that no write made.
    #[test]
    fn versions_order_writes_and_show_which_were_lost() {
        let fine = versions(&[(34, 5), (33, 2), (33, 3)], &[(33, 1), (34, 4)], 3);
        assert_eq!(fine.violations().unwrap(), Violations::default());
        let stale = versions(&[(34, 2), (33, 4)], &[(34, 1), (34, 3), (34, 4)], 2);
        let violations = stale.violations().unwrap();
        assert_eq!((violations.stale_writes, violations.overtaken_reads), (1, 2));
        let forked = versions(&[(33, 2), (34, 2), (34, 3)], &[], 2).violations().unwrap();
        assert_eq!((forked.forked_writes, forked.lost_increments), (1, 1));
    }

    #[test]
    fn unknown_writes_may_have_incremented() {
        let mut unknown = versions(&[(33, 2)], &[], 2);
        unknown.violations().unwrap_err();
        unknown.unknown = 1;
        assert_eq!(unknown.violations().unwrap(), Violations::default());
        let lost = History { unknown: 0, lost: 1, ..unknown };
        assert_eq!(lost.violations().unwrap().lost_resources, 1);
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
