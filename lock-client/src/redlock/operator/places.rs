//! The servers of a cluster, as an operator names and finds them.

use std::collections::HashMap;

use futures_util::future::join_all;

use super::error::OperatorError;
use crate::{
    redis::TimeLimits,
    redlock::{
        discovery::discover,
        epoch::Epoch,
        majority::majority,
        membership::Standing,
        node_urls::{InvalidNodes, NodeUrl},
        peer::{Peer, PeerError},
    },
};

/// The servers that an operator has named.
pub(super) struct Places {
    named: Vec<NodeUrl>,
    /// Those that this operator has added to the members.
    added: Vec<NodeUrl>,
    limits: TimeLimits,
}

/// The answers of all nodes.
pub(super) struct Answers {
    /// The current epoch; `None` if a majority of the members votes in none, or if the change that
    /// began it may not be decided.
    pub(super) epoch: Option<Epoch>,
    /// The members of the current epoch; without one, the servers that were named.
    pub(super) members: Vec<Answer>,
    /// The servers that were named and are no members.
    pub(super) others: Vec<Answer>,
    /// Why a change of the members that is half done could not be finished, if that was tried.
    pub(super) unfinished: Option<OperatorError>,
}

/// The answer of one node.
pub(super) type Answer = Result<Peer, PeerError>;

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.named.iter().map(|url| &url.address)).finish()
    }
}

impl Places {
    pub(super) fn new<U: AsRef<str>>(urls: &[U]) -> Result<Self, InvalidNodes> {
        let named = NodeUrl::parse_all(urls)?;
        Ok(Self { named, added: Vec::new(), limits: TimeLimits::default() })
    }

    /// Parses the URL of a node of this cluster.
    pub(super) fn parse(&self, url: &str) -> Result<NodeUrl, OperatorError> {
        let first = self.named.first().expect("a cluster has nodes");
        first.parse_another(url).map_err(|error| OperatorError::Invalid(error.to_string()))
    }

    pub(super) fn answer_within(self, limits: TimeLimits) -> Self {
        Self { limits, ..self }
    }

    /// Whether the operator has named the server at an address.
    pub(super) fn has_named(&self, address: &str) -> bool {
        self.named.iter().any(|url| url.address == address)
    }

    /// Connects to the members of the current epoch, and to the servers that were named.
    pub(super) async fn connect_all(&self) -> Answers {
        let mut found = discover(&self.named, &self.added, self.limits).await;
        if !found.is_decided() {
            found.current = None;
        }
        let epoch = found.current.clone();
        let mut members = found.take_members();
        let mut others = found.take_named();
        for peer in members.iter_mut().chain(&mut others).flatten() {
            let record = peer.record.as_ref();
            peer.standing = Standing::determine(&peer.run_id, record, epoch.as_ref());
        }
        Answers { epoch, members, others, unfinished: None }
    }

    /// Connects to the servers that were named.
    pub(super) async fn connect_named(&self) -> Vec<Answer> {
        join_all(self.named.iter().map(|url| self.connect(url))).await
    }

    /// Connects to all nodes that are, or were, members of the cluster.
    pub(super) async fn connect_everywhere(&self) -> Vec<Answer> {
        discover(&self.named, &self.added, self.limits).await.into_cluster()
    }

    /// Connects to the nodes that are, or were, these members.
    pub(super) async fn connect_to(&self, addresses: &[String]) -> Vec<Answer> {
        discover(&self.named, &self.added, self.limits).await.take(addresses)
    }

    /// Notes servers that this operator has added to the members.
    pub(super) fn note_added(&mut self, urls: Vec<NodeUrl>) {
        self.added.extend(urls);
    }

    /// Connects to the server at an address, and to no other.
    pub(super) async fn connect_at(&self, address: &str) -> Answer {
        let known = self.named.iter().chain(&self.added).find(|url| url.address == address);
        let url = match known {
            Some(url) => Some(url.clone()),
            None => self.named.first().and_then(|first| first.at(address)),
        };
        match url {
            Some(url) => self.connect(&url).await,
            None => Err(PeerError {
                address: address.to_owned(),
                reason: "this is no address of a server".to_owned(),
            }),
        }
    }

    /// Connects to a server, by its URL.
    pub(super) async fn connect(&self, url: &NodeUrl) -> Answer {
        Peer::connect(url, self.limits).await
    }
}

impl Answers {
    /// The number of nodes that make a majority.
    pub(super) fn majority(&self) -> usize {
        self.epoch.as_ref().map_or_else(|| majority(self.members.len()), Epoch::majority)
    }

    /// Returns the number of the member at an address.
    pub(super) fn position(&self, address: &str) -> Option<usize> {
        self.members.iter().position(|member| match member {
            Ok(peer) => peer.address == address || peer.member() == Some(address),
            Err(error) => error.address == address,
        })
    }

    /// The members before the last change, as the voters remember them; empty in the first epoch.
    pub(super) fn previous_members(&self) -> &[String] {
        let voters = self.members.iter().flatten();
        let mut voters = voters.filter(|peer| peer.standing == Standing::Voting);
        let previous = voters.find_map(|peer| peer.record.as_ref()?.previous.as_ref());
        previous.map_or(&[], |previous| &previous.members)
    }

    /// Checks that no two nodes are the same server. It would have two votes.
    pub(super) fn check_distinct(&self) -> Result<(), OperatorError> {
        check_distinct(self.members.iter().flatten())
    }
}

/// Checks that no two nodes are the same server.
pub(super) fn check_distinct<'a>(
    peers: impl IntoIterator<Item = &'a Peer>,
) -> Result<(), OperatorError> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for peer in peers {
        if let Some(other) = seen.insert(&peer.run_id, &peer.address) {
            return Err(OperatorError::Invalid(format!(
                "{other} and {} are one server: each node must be a Redis of its own",
                peer.address
            )));
        }
    }
    Ok(())
}
