//! What the machines count with, and what they know nodes by. The model has smaller ones.

pub(super) use fence::Token;

/// A value for each node, by its place in the list of nodes.
pub(super) type PerNode<T> = Vec<T>;

/// The id of a cluster.
pub(super) type Cluster = String;
/// The number of a roster.
pub(super) type Term = u64;
/// The longest ttl that a cluster grants, in milliseconds.
pub(super) type MaxTtl = u64;
/// The address of a member.
pub(super) type Address = String;
/// The `run_id` of a process.
pub(super) type Process = String;
