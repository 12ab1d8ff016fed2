//! What the machines count with: small numbers, and lists that can be copied.

use std::{
    array,
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
};

pub(crate) use crate::id::Token;
pub(crate) type Cluster = ();
pub(crate) type Term = u8;
pub(crate) type MaxTtl = ();
pub(crate) type Address = u8;
pub(crate) type Process = u8;
use crate::{
    id::{MOST_NODES, NodeId},
    redlock::roster::{Roster, Seat},
};

// A list of nodes has a fixed size here, so that a roster needs no memory of its own.
impl Copy for Roster {}
impl Copy for Seat {}

/// A value for each node of a cluster.
/// The values beyond the cluster are all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PerNode<T> {
    values: [T; MOST_NODES],
    nodes: u8,
}

impl<T: Copy> PerNode<T> {
    /// The same values after the nodes were renumbered. `order[new]` is a node's old number.
    pub(crate) fn renumbered(&self, order: &[NodeId; MOST_NODES]) -> Self {
        Self { values: array::from_fn(|new| self.values[order[new].index()]), ..*self }
    }
}

impl<T: Copy + Default> FromIterator<T> for PerNode<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut all = Self { values: [T::default(); MOST_NODES], nodes: 0 };
        for value in values {
            all.values[usize::from(all.nodes)] = value;
            all.nodes += 1;
        }
        all
    }
}

impl<T: Hash> Hash for PerNode<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.iter().for_each(|value| value.hash(hasher));
    }
}

impl<T> Deref for PerNode<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..usize::from(self.nodes)]
    }
}

impl<T> DerefMut for PerNode<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[..usize::from(self.nodes)]
    }
}
