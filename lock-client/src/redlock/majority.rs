//! Majorities.

/// Returns the number of nodes that make a majority: more than half of them.
pub fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}
