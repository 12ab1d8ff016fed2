//! What the nodes have said about the epoch in which they vote.

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    epoch::Epoch, majority::majority, membership::Membership, node_error::NodeError,
    node_urls::NodeUrl,
};
use crate::Ttl;

/// What the nodes have said about the epoch in which they vote.
pub(super) struct Electorate {
    /// The nodes' addresses.
    addresses: Vec<String>,
    /// The membership of each node when it was last connected to.
    members: Mutex<Vec<Option<Membership>>>,
    /// The epoch in which the nodes vote; unknown until a majority of them has named it.
    epoch: OnceLock<Epoch>,
    /// Whether a node was found that may vote in a later epoch.
    is_outdated: AtomicBool,
}

impl Electorate {
    /// Starts with nodes that must vote in the epoch, if one is given.
    pub(super) fn new(urls: &[NodeUrl], epoch: Option<Epoch>) -> Self {
        Self {
            addresses: urls.iter().map(|url| url.address.clone()).collect(),
            members: Mutex::new(vec![None; urls.len()]),
            epoch: epoch.map_or_else(OnceLock::new, OnceLock::from),
            is_outdated: AtomicBool::new(false),
        }
    }

    /// The epoch in which the nodes vote, if it is known.
    pub(super) fn epoch(&self) -> Option<&Epoch> {
        self.epoch.get()
    }

    /// Whether the nodes may not be the members any more.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Records that a node may vote in a later epoch.
    pub(super) fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }

    /// Records that a search has found no later epoch than that of these nodes.
    pub(super) fn confirm(&self) {
        self.is_outdated.store(false, Ordering::Relaxed);
    }

    /// Whether the nodes have neither named an epoch nor shown that the members are others.
    pub(super) fn is_unknown(&self) -> bool {
        self.epoch.get().is_none() && !self.is_outdated()
    }

    /// Records that no further node will name an epoch soon. The members may be others, although
    /// fewer than a majority of the nodes have named them.
    pub(super) fn end_learning(&self) {
        if self.epoch.get().is_none() && self.may_be_others() {
            self.outdate();
        }
    }

    /// The longest ttl that the cluster grants. Before the epoch is known, one node is enough,
    /// because all nodes of a cluster have the same.
    pub(super) fn longest_ttl(&self) -> Option<Ttl> {
        let longest = match self.epoch() {
            Some(epoch) => Some(epoch.max_ttl_ms),
            None => self.members().iter().flatten().map(|member| member.epoch.max_ttl_ms).max(),
        };
        longest.and_then(|longest| Ttl::new(Duration::from_millis(longest)).ok())
    }

    /// Records a node's membership, and checks that no other URL names the same server. Once a
    /// majority has named one epoch, the nodes vote in that one.
    pub(super) fn register(&self, node: usize, membership: &Membership) -> Result<(), NodeError> {
        let mut members = self.members();
        members[node] = None;
        let mut known = members.iter().enumerate();
        let is_same = |member: &Option<Membership>| {
            member.as_ref().is_some_and(|m| m.run_id == membership.run_id)
        };
        if let Some((other, _)) = known.find(|(_, member)| is_same(member)) {
            let (address, number) = (&self.addresses[other], self.addresses.len());
            return Err(NodeError::NoVote(format!(
                "it is the same server as {address}: name {number} different servers"
            )));
        }
        members[node] = Some(membership.clone());
        if self.epoch.get().is_none() {
            let epoch = &membership.epoch;
            let others = members.iter().flatten().filter(|other| other.epoch == *epoch);
            if others.count() < majority(self.addresses.len()) {
                return Ok(());
            }
            if !self.are_members(epoch, &members) {
                self.outdate();
                return Ok(());
            }
            self.epoch.get_or_init(|| epoch.clone());
        }
        Ok(())
    }

    /// Whether a node votes in an epoch of other members, or two nodes vote in different epochs.
    fn may_be_others(&self) -> bool {
        let members = self.members();
        let mut epochs = members.iter().flatten().map(|member| &member.epoch);
        let Some(first) = epochs.next() else { return false };
        !self.are_members(first, &members) || epochs.any(|epoch| epoch != first)
    }

    /// Whether these nodes are the members of an epoch. In the first epoch, a client may reach them
    /// at other addresses.
    fn are_members(&self, epoch: &Epoch, known: &[Option<Membership>]) -> bool {
        let is_here = |member: &String| {
            let is_named = known.iter().flatten().any(|known| known.address == *member);
            is_named || self.addresses.contains(member)
        };
        epoch.members.len() == self.addresses.len()
            && (epoch.number == 1 || epoch.members.iter().all(is_here))
    }

    /// Checks that a node is a member, and votes in the epoch of these nodes. All that is asked for in
    /// one step must be granted in one epoch.
    pub(super) fn check(&self, membership: &Membership) -> Result<(), NodeError> {
        match self.epoch.get() {
            Some(epoch) if membership.epoch.change == epoch.change => {
                match membership.is_member() {
                    true => Ok(()),
                    false => Err(NodeError::NoVote("it is no member any more".to_owned())),
                }
            }
            Some(epoch) if membership.epoch.cluster != epoch.cluster => Err(NodeError::NoVote(
                "it belongs to another cluster than most of the nodes".to_owned(),
            )),
            // The node has missed a change. It is behind, and these nodes are not.
            Some(epoch) if membership.epoch.number < epoch.number => {
                Err(NodeError::OtherEpoch("it votes in an earlier epoch".to_owned()))
            }
            Some(_) => {
                self.outdate();
                Err(NodeError::OtherEpoch("it votes in another epoch".to_owned()))
            }
            None if self.is_outdated() => {
                Err(NodeError::OtherEpoch("the members have changed".to_owned()))
            }
            None => Err(NodeError::NoAnswer(
                "too few nodes answered to know which nodes are the members".to_owned(),
            )),
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Option<Membership>>> {
        self.members.lock().expect("nothing panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64, change: &str) -> Epoch {
        let members = ["a:6379", "b:6379", "c:6379"].map(ToOwned::to_owned).to_vec();
        Epoch { number, change: change.to_owned(), ..Epoch::first("id".to_owned(), members, 1_000) }
    }

    #[test]
    fn node_that_is_no_member_of_the_epoch_has_no_vote() {
        let urls = NodeUrl::parse_all(["redis://a", "redis://b", "redis://c"]).unwrap();
        let electorate = Electorate::new(&urls, Some(epoch(2, "second")));
        for (address, is_member) in [("a:6379", true), ("removed:6379", false)] {
            let (run_id, address) = ("1".to_owned(), address.to_owned());
            let membership = Membership { run_id, address, epoch: epoch(2, "second") };
            assert_eq!(electorate.check(&membership).is_ok(), is_member);
        }
    }

    #[test]
    fn nodes_are_outdated_by_another_epoch_unless_it_is_an_earlier_one() {
        let urls = NodeUrl::parse_all(["redis://a", "redis://b", "redis://c"]).unwrap();
        let present = Some(epoch(2, "second"));
        let electorate = Electorate::new(&urls, present);
        let votes = |number, change| {
            let (run_id, address) = ("1".to_owned(), "a:6379".to_owned());
            electorate.check(&Membership { run_id, address, epoch: epoch(number, change) })
        };
        assert!(votes(2, "second").is_ok());
        assert!(matches!(votes(1, "id"), Err(NodeError::OtherEpoch(_))));
        assert!(!electorate.is_outdated(), "the node is behind");
        for (number, change) in [(2, "other"), (3, "third")] {
            assert!(matches!(votes(number, change), Err(NodeError::OtherEpoch(_))));
            assert!(electorate.is_outdated(), "{change}");
            electorate.confirm();
            assert!(!electorate.is_outdated());
        }
    }
}
