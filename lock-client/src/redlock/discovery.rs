//! The search for the current epoch, and for the servers of its members.

use std::collections::HashSet;

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{
    epoch::Epoch,
    node_urls::NodeUrl,
    peer::{Peer, PeerError, largest_cluster},
};
use crate::redis::TimeLimits;

/// The answers of the servers that may be members.
pub(super) struct Discovery {
    named: Vec<NodeUrl>,
    /// The cluster of the members.
    cluster: Option<String>,
    /// The highest epoch in which a majority of the members votes.
    pub(super) current: Option<Epoch>,
    /// The servers that were named, and those that they named as members.
    places: Vec<Place>,
}

/// A server, and its answer.
struct Place {
    url: NodeUrl,
    peer: Result<Peer, PeerError>,
}

/// Asks the named servers and some others for their records, and then the members that these name.
/// Waits for all of them.
pub(super) async fn discover(
    named: &[NodeUrl],
    others: &[NodeUrl],
    limits: TimeLimits,
) -> Discovery {
    search(named, others, None, limits, |_| false).await
}

/// Finds where the members of the current epoch are. Waits for no more answers than it needs. If the
/// cluster is known, it counts no other.
pub(super) async fn find_members(
    named: &[NodeUrl],
    others: &[NodeUrl],
    cluster: Option<&str>,
    limits: TimeLimits,
) -> Option<(Epoch, Vec<NodeUrl>)> {
    let found = search(named, others, cluster, limits, |found| found.current.is_some()).await;
    let urls = found.member_urls()?;
    Some((found.current?, urls))
}

/// Asks servers until enough have answered, or all.
async fn search(
    named: &[NodeUrl],
    others: &[NodeUrl],
    cluster: Option<&str>,
    limits: TimeLimits,
    is_enough: impl Fn(&Discovery) -> bool,
) -> Discovery {
    let ask = |url: NodeUrl| async move {
        let peer = Peer::connect(&url, limits).await;
        Place { url, peer }
    };
    let cluster = cluster.map(ToOwned::to_owned);
    let mut found = Discovery { named: named.to_vec(), cluster, current: None, places: vec![] };
    let mut asked = HashSet::new();
    let first = named.iter().chain(others).filter(|url| asked.insert(url.address.clone()));
    let mut asking: FuturesUnordered<_> = first.cloned().map(ask).collect();
    while let Some(place) = asking.next().await {
        found.places.push(place);
        found.find_current();
        if is_enough(&found) {
            break;
        }
        for member in found.members_named_by_members() {
            if asked.insert(member.clone())
                && let Some(url) = named.first().and_then(|first| first.at(&member))
            {
                asking.push(ask(url));
            }
        }
    }
    found
}

impl Discovery {
    /// Whether a member knows that the change which began the current epoch is decided.
    pub(super) fn is_decided(&self) -> bool {
        let knows = |peer: &Peer| {
            let decided = peer.record.as_ref().is_some_and(|record| record.is_decided);
            decided && self.current.as_ref().is_some_and(|epoch| peer.votes_in(epoch))
        };
        self.answers().any(knows)
    }

    fn answers(&self) -> impl Iterator<Item = &Peer> + Clone {
        self.places.iter().filter_map(|place| place.peer.as_ref().ok())
    }

    /// The answers of the cluster's nodes.
    fn peers(&self) -> impl Iterator<Item = &Peer> + Clone {
        self.answers().filter(|peer| peer.cluster().is_some() && peer.cluster() == self.cluster())
    }

    fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Finds the cluster to which a majority of the named servers belongs, and the highest epoch in
    /// which a majority of its members votes.
    fn find_current(&mut self) {
        if self.cluster.is_none() {
            let is_named = |peer: &&Peer| self.named.iter().any(|url| url.address == peer.address);
            let named = || self.answers().filter(is_named);
            let largest = largest_cluster(named());
            let has_majority = |cluster: &String| {
                let belong = named().filter(|peer| peer.cluster() == Some(cluster));
                belong.count() > self.named.len() / 2
            };
            self.cluster = largest.filter(has_majority);
        }
        let voting = |epoch: &Epoch| {
            let votes = |peer: &&Peer| peer.votes_in(epoch);
            self.peers().filter(votes).map(|peer| &peer.run_id).collect::<HashSet<_>>().len()
        };
        let epochs = self.peers().filter_map(|peer| Some(&peer.record.as_ref()?.epoch));
        let current = epochs.filter(|epoch| voting(epoch) >= epoch.majority());
        self.current = current.max_by_key(|epoch| epoch.number).cloned();
    }

    /// Returns the addresses of the members that the cluster's nodes name, unless a process says
    /// that it is this member.
    fn members_named_by_members(&self) -> Vec<String> {
        let known: HashSet<&str> = self.peers().filter_map(Peer::admitted_as).collect();
        let records = || self.peers().filter_map(|peer| peer.record.as_ref());
        let epochs = records().map(|record| &record.epoch);
        let members = epochs.filter(|epoch| !self.has_named_members(epoch));
        let previous = records().filter_map(|record| record.previous.as_ref());
        members
            .flat_map(|epoch| &epoch.members)
            .chain(previous.flat_map(|previous| &previous.members))
            .filter(|member| !known.contains(member.as_str()))
            .cloned()
            .collect()
    }

    /// Whether the servers that were named are taken for the members, although the addresses differ:
    /// a client may reach all of them through proxies.
    fn has_named_members(&self, epoch: &Epoch) -> bool {
        let same_number = epoch.number == 1 && epoch.members.len() == self.named.len();
        same_number && !self.named.iter().any(|url| epoch.has_member(&url.address))
    }

    /// Returns where the members of the current epoch are: those that have answered where they did,
    /// the others at their addresses. `None` if an address is invalid.
    fn member_urls(&self) -> Option<Vec<NodeUrl>> {
        let epoch = self.current.as_ref()?;
        if self.has_named_members(epoch) {
            return Some(self.named.clone());
        }
        let url = |member: &String| match self.position(member) {
            Some(position) => Some(self.places[position].url.clone()),
            None => match self.named.iter().find(|url| url.address == *member) {
                Some(url) => Some(url.clone()),
                None => self.named.first()?.at(member),
            },
        };
        epoch.members.iter().map(url).collect()
    }

    /// Takes the answers of the current epoch's members. Without a current epoch, takes those of the
    /// servers that were named.
    pub(super) fn take_members(&mut self) -> Vec<Result<Peer, PeerError>> {
        match self.current.clone() {
            Some(mut epoch) if !self.has_named_members(&epoch) => {
                // Those that were named come first, in the same order.
                epoch.members.sort_by_key(|member| {
                    let address =
                        self.position(member).map(|place| &self.places[place].url.address);
                    let position = self.named.iter().position(|url| Some(&url.address) == address);
                    position.unwrap_or(usize::MAX)
                });
                self.take(&epoch.members)
            }
            _ => self.take_named(),
        }
    }

    /// Returns the answers of the cluster's nodes, and the failures.
    pub(super) fn into_cluster(self) -> Vec<Result<Peer, PeerError>> {
        let Self { cluster, places, .. } = self;
        let belongs =
            |peer: &Peer| peer.cluster().is_none() || peer.cluster() == cluster.as_deref();
        let answers = places.into_iter().map(|place| place.peer);
        answers.filter(|answer| answer.as_ref().map_or(true, belongs)).collect()
    }

    /// Takes the answers of these members.
    pub(super) fn take(&mut self, members: &[String]) -> Vec<Result<Peer, PeerError>> {
        let not_found = |address: &String| PeerError {
            address: address.clone(),
            reason: "there is no such member".to_owned(),
        };
        let take = |member: &String| match self.position(member) {
            Some(position) => self.places.remove(position).peer,
            None => Err(not_found(member)),
        };
        members.iter().map(take).collect()
    }

    /// Takes the answers of the servers that were named, in the same order.
    pub(super) fn take_named(&mut self) -> Vec<Result<Peer, PeerError>> {
        let position = |places: &[Place], url: &NodeUrl| {
            places.iter().position(|place| place.url.address == url.address)
        };
        let named = self.named.iter();
        let take =
            named.filter_map(|url| Some(self.places.remove(position(&self.places, url)?).peer));
        take.collect()
    }

    /// Finds the place of a member: where a process was admitted as this member, or else the server
    /// at its address. If the process answered at several addresses, the named one counts: behind a
    /// proxy, the others may answer earlier.
    fn position(&self, member: &str) -> Option<usize> {
        let is_admitted = |place: &Place| {
            let peer = place.peer.as_ref().ok();
            peer.is_some_and(|peer| {
                peer.cluster() == self.cluster() && peer.admitted_as() == Some(member)
            })
        };
        let is_named =
            |place: &Place| self.named.iter().any(|url| url.address == place.url.address);
        let is_there = |place: &Place| place.url.address == member;
        let places = &self.places;
        let position = places.iter().position(|place| is_admitted(place) && is_named(place));
        let position = position.or_else(|| places.iter().position(is_admitted));
        position.or_else(|| places.iter().position(is_there))
    }
}
