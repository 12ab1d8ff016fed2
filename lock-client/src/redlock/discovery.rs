//! The search for the current epoch, and for the servers of its members.

use std::collections::HashSet;

use futures_util::future::join_all;

use super::{
    epoch::Epoch,
    node_urls::NodeUrl,
    peer::{Peer, PeerError, largest_cluster},
};
use crate::redis::TimeLimits;

/// The answers of all servers that may be members.
pub(super) struct Discovery {
    /// The highest epoch in which a majority of the members votes.
    pub(super) current: Option<Epoch>,
    /// Whether one of them knows that the change which began it is decided.
    pub(super) is_decided: bool,
    /// The servers that were named, and those that they named as members.
    pub(super) places: Vec<Place>,
}

/// A server, and its answer.
pub(super) struct Place {
    pub(super) url: NodeUrl,
    pub(super) peer: Result<Peer, PeerError>,
}

/// Asks the named servers for their records, and then the members that these name.
pub(super) async fn discover(named: &[NodeUrl], limits: TimeLimits) -> Discovery {
    let mut places: Vec<Place> = Vec::new();
    let mut unasked = named.to_vec();
    while !unasked.is_empty() {
        let asking = unasked.into_iter().map(async |url| {
            let peer = Peer::connect(&url, limits).await;
            Place { url, peer }
        });
        places.extend(join_all(asking).await);
        unasked = unknown_members(&places, named);
    }
    // Of several clusters, the one counts to which most of the named servers belong.
    let cluster = largest_cluster(places[..named.len()].iter().filter_map(Place::answer));
    let answers = places.iter().filter_map(Place::answer);
    let current = cluster.and_then(|cluster| current_epoch(&cluster, answers));
    let knows = |peer: &Peer| {
        let decided = peer.record.as_ref().is_some_and(|record| record.is_decided);
        decided && current.as_ref().is_some_and(|epoch| peer.votes_in(epoch))
    };
    let is_decided = places.iter().filter_map(Place::answer).any(knows);
    Discovery { current, is_decided, places }
}

/// Returns the members at which nobody was asked yet.
fn unknown_members(places: &[Place], named: &[NodeUrl]) -> Vec<NodeUrl> {
    let mut known: HashSet<&str> = places.iter().map(|place| place.url.address.as_str()).collect();
    let peers = || places.iter().filter_map(Place::answer);
    known.extend(peers().filter_map(Peer::admitted_as));
    let records = || peers().filter_map(|peer| peer.record.as_ref());
    let epochs = records().map(|record| &record.epoch);
    let members = epochs.filter(|epoch| !has_named_members(epoch, named));
    let previous = records().filter_map(|record| record.previous.as_ref());
    members
        .flat_map(|epoch| &epoch.members)
        .chain(previous.flat_map(|previous| &previous.members))
        .filter(|member| known.insert(member))
        .filter_map(|member| named.first()?.at(member))
        .collect()
}

/// Whether the servers that were named are taken for the members, although the addresses differ: a
/// client may reach all of them through proxies.
fn has_named_members(epoch: &Epoch, named: &[NodeUrl]) -> bool {
    let same_number = epoch.number == 1 && epoch.members.len() == named.len();
    same_number && !named.iter().any(|url| epoch.has_member(&url.address))
}

/// Returns the highest epoch of a cluster in which a majority of the members votes.
fn current_epoch<'a>(
    cluster: &str,
    peers: impl Iterator<Item = &'a Peer> + Clone,
) -> Option<Epoch> {
    let voting = |epoch: &Epoch| {
        let votes = |peer: &&Peer| peer.votes_in(epoch);
        peers.clone().filter(votes).map(|peer| &peer.run_id).collect::<HashSet<_>>().len()
    };
    peers
        .clone()
        .filter_map(|peer| Some(&peer.record.as_ref()?.epoch))
        .filter(|epoch| epoch.cluster == cluster && voting(epoch) >= epoch.majority())
        .max_by_key(|epoch| epoch.number)
        .cloned()
}

impl Discovery {
    /// Takes the places of the current epoch's members. Without a current epoch, takes those of the
    /// servers that were named.
    pub(super) fn take_members(&mut self, named: &[NodeUrl]) -> Vec<Place> {
        match self.current.clone() {
            Some(epoch) if !has_named_members(&epoch, named) => {
                let mut members = self.take(&epoch.members);
                // Those that were named come first, in the same order.
                members.sort_by_key(|place| {
                    let position = named.iter().position(|url| url.address == place.url.address);
                    position.unwrap_or(usize::MAX)
                });
                members
            }
            _ => self.take_named(named),
        }
    }

    /// Takes the places of these members.
    pub(super) fn take(&mut self, members: &[String]) -> Vec<Place> {
        members.iter().filter_map(|member| self.take_member(member)).collect()
    }

    /// Takes the places of servers that were named.
    pub(super) fn take_named(&mut self, named: &[NodeUrl]) -> Vec<Place> {
        let is_named = |place: &mut Place| named.iter().any(|url| url.address == place.url.address);
        self.places.extract_if(.., is_named).collect()
    }

    /// Takes the place of a member: where a process was admitted as this member, or else the server
    /// at its address.
    fn take_member(&mut self, member: &str) -> Option<Place> {
        let is_admitted =
            |place: &Place| place.answer().and_then(Peer::admitted_as) == Some(member);
        let is_there = |place: &Place| place.url.address == member;
        let position = self.places.iter().position(is_admitted);
        let position = position.or_else(|| self.places.iter().position(is_there))?;
        Some(self.places.remove(position))
    }
}

impl Place {
    fn answer(&self) -> Option<&Peer> {
        self.peer.as_ref().ok()
    }
}
