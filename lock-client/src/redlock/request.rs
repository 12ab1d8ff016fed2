//! The kinds of requests to nodes.

/// The kind of a request to a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A vote. It is useful only if it arrives soon.
    Vote,
    /// The release of a lock that the node has granted, or may still grant. It is useful however
    /// late it arrives.
    Release,
}
