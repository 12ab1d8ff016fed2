//! The epochs of a cluster. Each begins with a change of the members.

use std::collections::HashMap;

use super::majority::majority;

/// The members of a cluster, until the next change of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    /// The cluster's id.
    pub(super) cluster: String,
    /// 1 at the start of the cluster. Each change adds 1.
    pub(super) number: u64,
    /// The id of the change that began this epoch. Two operators may propose different members for
    /// one number, and only one of the changes is decided.
    pub(super) change: String,
    /// The addresses of the members.
    pub(super) members: Vec<String>,
    /// The longest ttl that the cluster grants.
    pub(super) max_ttl_ms: u64,
}

/// The epoch before, as a node that has left it remembers it. Its members decide which change ends
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Previous {
    pub(super) change: String,
    pub(super) members: Vec<String>,
}

/// A node's part in the ballots that end its epoch and have ended the one before. Ballots are
/// ordered as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ballots {
    /// The highest ballot that it has promised on the end of its epoch; empty if there is none.
    pub(super) promised: String,
    /// The same on the end of the epoch before.
    pub(super) last_promised: String,
    /// The ballot in which it accepted the change that began its epoch; empty in the first.
    pub(super) accepted: String,
}

/// Between the addresses in a record. An address has no line feed.
pub(super) const SEPARATOR: &str = "\n";

impl Epoch {
    /// Returns the first epoch of a new cluster.
    pub(super) fn first(cluster: String, members: Vec<String>, max_ttl_ms: u64) -> Self {
        Self { change: cluster.clone(), cluster, number: 1, members, max_ttl_ms }
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.members.len())
    }

    pub(super) fn has_member(&self, address: &str) -> bool {
        self.members.iter().any(|member| member == address)
    }

    /// The members, as they are in a record.
    pub(super) fn joined_members(&self) -> String {
        self.members.join(SEPARATOR)
    }

    /// Reads an epoch from the fields of a record; `None` if one is missing.
    pub(super) fn from_fields(fields: &HashMap<String, String>) -> Option<Self> {
        Some(Self {
            cluster: fields.get("cluster")?.clone(),
            number: fields.get("epoch")?.parse().ok()?,
            change: fields.get("change")?.clone(),
            members: split_members(fields.get("members")?),
            max_ttl_ms: fields.get("max_ttl_ms")?.parse().ok()?,
        })
    }
}

impl Previous {
    pub(super) fn from_fields(fields: &HashMap<String, String>) -> Option<Self> {
        Some(Self {
            change: fields.get("last_change")?.clone(),
            members: split_members(fields.get("last_members")?),
        })
    }
}

impl Ballots {
    pub(super) fn from_fields(fields: &HashMap<String, String>) -> Self {
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        Self {
            promised: field("promised"),
            last_promised: field("last_promised"),
            accepted: field("ballot"),
        }
    }

    /// The higher of each.
    pub(super) fn max(self, other: &Self) -> Self {
        let max = |one: String, other: &String| one.max(other.clone());
        Self {
            promised: max(self.promised, &other.promised),
            last_promised: max(self.last_promised, &other.last_promised),
            accepted: max(self.accepted, &other.accepted),
        }
    }
}

pub(super) fn split_members(members: &str) -> Vec<String> {
    members.split(SEPARATOR).map(ToOwned::to_owned).collect()
}
