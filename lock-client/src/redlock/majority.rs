//! Majorities: what it takes to decide, and when an answer is still missing.

/// Returns the number of nodes that make a majority: more than half of them.
pub fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether the nodes that have not answered yet decide whether `count` reaches the majority.
pub(super) fn is_undecided(count: usize, outstanding: usize, majority: usize) -> bool {
    count < majority && count + outstanding >= majority
}
