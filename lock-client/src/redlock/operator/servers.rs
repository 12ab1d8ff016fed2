//! The servers of a cluster, as an operator names and finds them.

use std::collections::{BTreeSet, HashSet};

use futures_util::future::join_all;

use super::{
    Operator,
    error::OperatorError,
    peer::{Peer, PeerError},
};
use crate::redlock::{
    majority::majority,
    node_urls::NodeUrl,
    nodes::by_reason,
    record::Record,
    roster::{Roster, Seat},
};

/// The answers of all servers at one time.
#[derive(Default)]
pub(super) struct Sight {
    pub(super) peers: Vec<Peer>,
    pub(super) silent: Vec<PeerError>,
    /// The cluster of a majority of the named servers.
    pub(super) cluster: Option<String>,
}

impl Operator {
    /// Parses the URL of a node of this cluster. Without a password and certificates, it has those of the
    /// node that was named with this address, or of the first one. But if only one of the two is encrypted,
    /// it stays as it is: nobody may read the password on the way.
    pub(super) fn parse(&self, url: &str) -> Result<NodeUrl, OperatorError> {
        let node = self.named[0].parse_another(url);
        let node = node.map_err(|error| OperatorError::Invalid(error.to_string()))?;
        if ["@", "pass=", "tls-"].iter().any(|own| url.contains(own)) {
            return Ok(node);
        }
        let is_alike = |known: &NodeUrl| {
            self.has_named(&known.address)
                || known.server.is_encrypted() == node.server.is_encrypted()
        };
        Ok(self.url(&[], &node.address).filter(is_alike).unwrap_or(node))
    }

    /// Whether the operator has named the server at an address.
    pub(super) fn has_named(&self, address: &str) -> bool {
        self.named.iter().any(|url| url.address == address)
    }

    /// The URL of an address. A server that is not named has the user and the password of the first one.
    fn url(&self, others: &[NodeUrl], address: &str) -> Option<NodeUrl> {
        let known = self.named.iter().chain(others).find(|url| url.address == address);
        known.cloned().or_else(|| self.named[0].at(address))
    }

    /// Connects to the server at an address, and to no other.
    pub(super) async fn connect_at(
        &self,
        others: &[NodeUrl],
        address: &str,
    ) -> Result<Peer, PeerError> {
        match self.url(others, address) {
            Some(url) => Peer::connect(&url, self.limits).await,
            None => Err(PeerError::new(address, "this is no address of a server")),
        }
    }

    /// Connects to the servers that were named, to these others, and to all that any data name, of whatever
    /// cluster: an interrupted start leaves data of a cluster that never was, and the old one in few of
    /// them. The cluster is the known one, unless a majority of the named servers have another in their
    /// data.
    pub(super) async fn look(&self, others: &[NodeUrl], known: Option<&str>) -> Sight {
        let mut sight = Sight::default();
        let mut asked = HashSet::new();
        let named = self.named.iter().chain(others).map(|url| url.address.clone());
        let mut next: Vec<String> = named.collect();
        loop {
            next.retain(|address| asked.insert(address.clone()));
            if next.is_empty() {
                break;
            }
            let connecting = next.iter().map(|address| self.connect_at(others, address));
            for answer in join_all(connecting).await {
                match answer {
                    Ok(peer) => sight.peers.push(peer),
                    Err(error) => sight.silent.push(error),
                }
            }
            let records = sight.peers.iter().filter_map(|peer| peer.record.as_ref());
            let seats = records.flat_map(Record::rosters).flat_map(|roster| &roster.seats);
            next = seats.map(|seat| seat.address.clone()).collect();
        }
        sight.cluster = self.cluster(&sight, known, Peer::roster);
        sight
    }

    /// The cluster to which a majority of the named servers belong, by the rosters that `own` finds in
    /// their data. Otherwise the known one. Otherwise the only one that has a majority of them by its
    /// rosters, too, with those that have no data or do not answer. A server of another cluster must not
    /// decide it.
    pub(super) fn cluster(
        &self,
        sight: &Sight,
        known: Option<&str>,
        own: fn(&Peer) -> Option<&Roster>,
    ) -> Option<String> {
        let mut processes = HashSet::new();
        let is_first = |url: &&NodeUrl| {
            sight.at(&url.address).is_none_or(|peer| processes.insert(&peer.process))
        };
        let named: Vec<_> = self.named.iter().filter(is_first).collect();
        let own_cluster = |url: &NodeUrl| Some(own(sight.at(&url.address)?)?.cluster.as_str());
        let clusters: BTreeSet<&str> = named.iter().filter_map(|url| own_cluster(url)).collect();
        let has_seat = |url: &NodeUrl, cluster: &str| {
            let mut rosters = sight.peers.iter().filter_map(own).filter(|it| it.cluster == cluster);
            rosters.any(|roster| roster.seats.iter().any(|seat| seat.address == url.address))
        };
        let is_majority = |belongs: &dyn Fn(&NodeUrl) -> bool| {
            named.iter().filter(|url| belongs(url)).count() >= majority(self.named.len())
        };
        let by_data = |cluster: &str| is_majority(&|url| own_cluster(url) == Some(cluster));
        let by_rosters = |cluster: &str| {
            is_majority(&|url| match own_cluster(url) {
                Some(own) => own == cluster,
                None => has_seat(url, cluster),
            })
        };
        let of_data = clusters.iter().copied().find(|cluster| by_data(cluster));
        let mut of_rosters = clusters.iter().copied().filter(|cluster| by_rosters(cluster));
        let only = of_rosters.next().filter(|_| of_rosters.next().is_none());
        of_data.or(known).or(only).map(ToOwned::to_owned)
    }

    /// Who answers for a seat: its process, where it was named if it is; or else a process without a seat
    /// at its address, because one that has another seat is no second voter.
    pub(super) fn at_seat<'a>(
        &self,
        sight: &'a Sight,
        roster: &Roster,
        seat: &Seat,
    ) -> Result<&'a Peer, PeerError> {
        let own = sight.peers.iter().filter(|peer| peer.process == seat.process);
        let own =
            own.max_by_key(|peer| (self.has_named(&peer.address), peer.address == seat.address));
        let without_seat = |peer: &&Peer| roster.seat_of(&peer.process).is_none();
        own.or_else(|| sight.at(&seat.address).filter(without_seat))
            .ok_or_else(|| sight.silence(&seat.address))
    }
}

impl Sight {
    /// Why it is not known which cluster is meant.
    pub(super) fn no_cluster(&self) -> String {
        let clusters: BTreeSet<_> = self.peers.iter().filter_map(Peer::cluster).collect();
        match clusters.len() {
            0 => {
                "no node that answers belongs to a cluster: see `lock-client node init`".to_owned()
            }
            1 => format!(
                "fewer than a majority of the named servers belong to cluster {}: name its members, \
                 which `lock-client node status` shows",
                clusters.iter().copied().collect::<String>()
            ),
            number => several_clusters(number),
        }
    }

    /// The roster of most voters, and how many there are.
    pub(super) fn newest(&self) -> Option<(&Roster, usize)> {
        let rosters = self.peers.iter().filter_map(Peer::roster);
        let rosters = rosters.filter(|roster| self.cluster.as_ref() == Some(&roster.cluster));
        let counted = rosters.map(|roster| (roster, self.voters(roster)));
        counted.max_by_key(|(roster, voters)| (*voters >= roster.majority(), *voters, roster.term))
    }

    /// How many processes vote for a roster.
    pub(super) fn voters(&self, roster: &Roster) -> usize {
        roster.seats.iter().filter(|seat| self.votes(&seat.process, roster)).count()
    }

    /// Whether a process votes for a roster.
    pub(super) fn votes(&self, process: &str, roster: &Roster) -> bool {
        let mut own = self.peers.iter().filter(|peer| peer.process == process);
        own.any(|peer| peer.votes() && peer.roster() == Some(roster))
    }

    /// Why there was no answer from an address.
    pub(super) fn silence(&self, address: &str) -> PeerError {
        let silent = self.silent.iter().find(|error| error.address == address).cloned();
        silent.unwrap_or_else(|| PeerError::new(address, "another member answers there"))
    }

    /// The peer at an address.
    pub(super) fn at(&self, address: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.address == address)
    }

    /// The peer with a process.
    pub(super) fn with(&self, process: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.process == process)
    }

    /// Why each server has no vote for a roster.
    pub(super) fn reasons(&self, roster: Option<&Roster>) -> String {
        let voteless = self.peers.iter().filter(|peer| {
            !(peer.votes() && roster.is_none_or(|roster| peer.roster() == Some(roster)))
        });
        let voteless =
            voteless.map(|peer| (&*peer.address, peer.state(roster).reason().to_owned()));
        let silent = self.silent.iter().map(|error| (&*error.address, error.reason.clone()));
        by_reason(voteless.chain(silent))
    }
}

/// Says that nobody can know which of several clusters is meant.
pub(super) fn several_clusters(number: usize) -> String {
    format!("these servers belong to {number} clusters: name all nodes of one, and no others")
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn server_is_asked_over_the_kind_of_connection_that_its_url_names() {
        for (named, first, second, encrypted) in [
            ("redis", "rediss", "valkeys", true),
            ("redis", "RedisS", "rediss", true),
            ("rediss", "redis", "valkey", false),
        ] {
            let urls = ["a", "b", "c"].map(|host| format!("{named}://:secret@{host}"));
            let operator = Operator::new(&urls).unwrap();
            for scheme in [first, second] {
                let node = operator.parse(&format!("{scheme}://d")).unwrap();
                assert_eq!(node.server.is_encrypted(), encrypted, "{scheme} beside {named}");
            }
        }
    }
}
