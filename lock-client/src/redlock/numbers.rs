//! What the machines count with. The model has smaller ones.

pub(super) use fence::Token;

/// A value for each node, by its place in the list of nodes.
pub(super) type PerNode<T> = Vec<T>;
