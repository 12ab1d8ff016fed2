//! The servers of a cluster, as an operator names and finds them.

use std::collections::{BTreeSet, HashSet};

use futures_util::future::join_all;

use super::{
    error::OperatorError,
    peer::{Peer, PeerError},
};
use crate::{
    redis::TimeLimits,
    redlock::{
        majority::majority,
        node_urls::{InvalidNodes, NodeUrl},
        nodes::by_reason,
        record::Record,
        roster::Roster,
    },
};

/// The servers that an operator has named.
pub(super) struct Servers {
    pub(super) named: Vec<NodeUrl>,
    limits: TimeLimits,
}

/// The answers of all servers at one time.
#[derive(Default)]
pub(super) struct Sight {
    pub(super) peers: Vec<Peer>,
    pub(super) silent: Vec<PeerError>,
    /// The cluster of a majority of the named servers.
    pub(super) cluster: Option<String>,
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.named.iter().map(|url| &url.address)).finish()
    }
}

impl Servers {
    pub(super) fn new<U: AsRef<str>>(urls: &[U]) -> Result<Self, InvalidNodes> {
        Ok(Self { named: NodeUrl::parse_all(urls)?, limits: TimeLimits::default() })
    }

    pub(super) fn answer_within(self, limits: TimeLimits) -> Self {
        Self { limits, ..self }
    }

    pub(super) fn limits(&self) -> TimeLimits {
        self.limits
    }

    /// Parses the URL of a node of this cluster.
    pub(super) fn parse(&self, url: &str) -> Result<NodeUrl, OperatorError> {
        let url = self.named[0].parse_another(url);
        url.map_err(|error| OperatorError::Invalid(error.to_string()))
    }

    /// Whether the operator has named the server at an address.
    pub(super) fn has_named(&self, address: &str) -> bool {
        self.named.iter().any(|url| url.address == address)
    }

    /// The cluster of a majority of the named servers, by their data. Otherwise the known one. Otherwise the
    /// only one that has a majority of them by its rosters, too, with those that have no data or do not
    /// answer. A server of another cluster must not decide it.
    fn cluster(&self, sight: &Sight, known: Option<&str>) -> Option<String> {
        let mut processes = HashSet::new();
        let is_first = |url: &&NodeUrl| {
            sight.at(&url.address).is_none_or(|peer| processes.insert(&peer.process))
        };
        let named: Vec<_> = self.named.iter().filter(is_first).collect();
        let own = |url: &NodeUrl| sight.at(&url.address).and_then(Peer::cluster);
        let clusters: BTreeSet<&str> = named.iter().filter_map(|url| own(url)).collect();
        let has_seat = |url: &NodeUrl, cluster: &str| {
            let mut seats = sight.rosters(Some(cluster)).flat_map(|roster| &roster.seats);
            seats.any(|seat| seat.address == url.address)
        };
        let majority = majority(self.named.len());
        let by_data = |cluster: &str| {
            named.iter().filter(|url| own(url) == Some(cluster)).count() >= majority
        };
        let by_rosters = |cluster: &str| {
            let belongs = |url: &NodeUrl| {
                own(url).map_or_else(|| has_seat(url, cluster), |own| own == cluster)
            };
            named.iter().filter(|url| belongs(url)).count() >= majority
        };
        let of_data = clusters.iter().find(|cluster| by_data(cluster)).copied();
        let mut of_rosters = clusters.iter().filter(|cluster| by_rosters(cluster)).copied();
        let only = of_rosters.next().filter(|_| of_rosters.next().is_none());
        of_data.or(known).or(only).map(ToOwned::to_owned)
    }

    /// Connects to the server at an address, and to no other.
    pub(super) async fn connect_at(&self, address: &str) -> Result<Peer, PeerError> {
        let named = self.named.iter().find(|url| url.address == address).cloned();
        match named.or_else(|| self.named[0].at(address)) {
            Some(url) => Peer::connect(&url, self.limits).await,
            None => Err(PeerError {
                address: address.to_owned(),
                reason: "this is no address of a server".to_owned(),
            }),
        }
    }

    /// Connects to the servers that were named.
    pub(super) async fn look_at_named(&self) -> Sight {
        let mut sight = Sight::default();
        let named = self.named.iter().map(|url| Peer::connect(url, self.limits));
        for answer in join_all(named).await {
            match answer {
                Ok(peer) => sight.peers.push(peer),
                Err(error) => sight.silent.push(error),
            }
        }
        sight
    }

    /// Connects to the servers that were named, to these others, and to the members that they name.
    /// Follows the known cluster, unless a majority of the named servers have another in their data.
    pub(super) async fn look(&self, others: &[NodeUrl], known: Option<&str>) -> Sight {
        self.follow(others, |sight| {
            sight.cluster = self.cluster(sight, known);
            // A majority that votes must be seen, also if another server was named in its place.
            let is_own = |roster: &&Roster| {
                sight.cluster.as_ref().is_none_or(|cluster| roster.cluster == *cluster)
            };
            addresses(sight.peers.iter().filter_map(Peer::roster).filter(is_own))
        })
        .await
    }

    /// Connects to the servers that were named, and to all that any data name, of whatever cluster. An
    /// interrupted start leaves data of a cluster that never was, and the old one in few of them.
    pub(super) async fn look_everywhere(&self) -> Sight {
        self.follow(&[], |sight| {
            let records = sight.peers.iter().filter_map(|peer| peer.record.as_ref());
            addresses(records.flat_map(Record::rosters))
        })
        .await
    }

    /// Connects to the servers that were named, to these others, and then to those that this sight
    /// leads to, as long as there are any.
    async fn follow(
        &self,
        others: &[NodeUrl],
        leads_to: impl Fn(&mut Sight) -> Vec<String>,
    ) -> Sight {
        let mut sight = Sight::default();
        let mut asked = HashSet::new();
        let named = self.named.iter().chain(others).map(|url| url.address.clone());
        let mut next: Vec<String> = named.collect();
        loop {
            next.retain(|address| asked.insert(address.clone()));
            if next.is_empty() {
                return sight;
            }
            let connect = |address: String| {
                let other = others.iter().find(|url| url.address == address).cloned();
                async move {
                    match other {
                        Some(url) => Peer::connect(&url, self.limits).await,
                        None => self.connect_at(&address).await,
                    }
                }
            };
            for answer in join_all(next.drain(..).map(connect)).await {
                match answer {
                    Ok(peer) => sight.peers.push(peer),
                    Err(error) => sight.silent.push(error),
                }
            }
            next = leads_to(&mut sight);
        }
    }
}

/// The addresses of all members.
fn addresses<'a>(rosters: impl Iterator<Item = &'a Roster>) -> Vec<String> {
    rosters.flat_map(|roster| &roster.seats).map(|seat| seat.address.clone()).collect()
}

impl Sight {
    /// The clusters in the data of all servers.
    pub(super) fn clusters(&self) -> BTreeSet<&str> {
        self.peers.iter().filter_map(Peer::cluster).collect()
    }

    /// Why it is not known which cluster is meant.
    pub(super) fn no_cluster(&self) -> String {
        let clusters = self.clusters();
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

    /// The rosters of a cluster.
    pub(super) fn rosters(&self, cluster: Option<&str>) -> impl Iterator<Item = &Roster> {
        let rosters = self.peers.iter().filter_map(Peer::roster);
        rosters.filter(move |roster| cluster == Some(roster.cluster.as_str()))
    }

    /// The roster of most voters, and how many there are.
    pub(super) fn newest(&self) -> Option<(&Roster, usize)> {
        let rosters = self.rosters(self.cluster.as_deref());
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
        silent.unwrap_or_else(|| PeerError {
            address: address.to_owned(),
            reason: "another member answers there".to_owned(),
        })
    }

    /// The peer at an address.
    pub(super) fn at(&self, address: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.address == address)
    }

    /// The peer with a process.
    pub(super) fn with(&self, process: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.process == process)
    }

    /// Checks that no two of these servers are one. It would have two seats.
    pub(super) fn check_distinct(&self) -> Result<(), OperatorError> {
        let mut seen = HashSet::new();
        for peer in &self.peers {
            if !seen.insert(&peer.process) {
                let other = self.with(&peer.process).expect("it was seen");
                return Err(OperatorError::Invalid(format!(
                    "{} and {} are one server: each node must be a Redis of its own",
                    other.address, peer.address
                )));
            }
        }
        Ok(())
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
