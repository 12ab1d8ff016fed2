//! The URLs of a cluster's nodes.

use std::sync::Arc;

use crate::redis::{InvalidRedisUrl, Server};

/// These URLs do not name the nodes of a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidNodes {
    /// A URL can't be used.
    #[error(transparent)]
    Url(#[from] InvalidRedisUrl),
    /// There are too few nodes, or an even number: four nodes tolerate no more failures than three.
    #[error("Redlock takes 3, 5 or another odd number of nodes, not {0}")]
    WrongNumber(usize),
    /// Two URLs name the same node.
    #[error("{0} is named twice: each node must be a Redis of its own")]
    Duplicate(String),
    /// A URL names Sentinels or a Cluster.
    #[error("each node of Redlock is one Redis by itself: name no Cluster and no Sentinels")]
    NotSingle,
}

/// The server that one URL names.
#[derive(Clone)]
pub(super) struct NodeUrl {
    pub(super) server: Arc<Server>,
    /// The server's address, without a password.
    pub(super) address: String,
}

impl NodeUrl {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidNodes> {
        let server = Server::open(url)?;
        if !server.is_single_node() {
            return Err(InvalidNodes::NotSingle);
        }
        Ok(Self { address: server.to_string(), server: Arc::new(server) })
    }

    /// Returns the node at another address, with the same user, password and certificates. `None`
    /// if the address is invalid.
    pub(super) fn at(&self, address: &str) -> Option<Self> {
        Some(Self { address: address.to_owned(), server: Arc::new(self.server.at(address)?) })
    }

    /// Parses the URLs of all nodes.
    pub(super) fn parse_all<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Vec<Self>, InvalidNodes> {
        let urls: Vec<_> = urls.into_iter().collect();
        if urls.len() < 3 || urls.len().is_multiple_of(2) {
            return Err(InvalidNodes::WrongNumber(urls.len()));
        }
        let mut nodes: Vec<Self> = Vec::new();
        for url in urls {
            let node = Self::parse(url.as_ref())?;
            if nodes.iter().any(|other| other.address == node.address) {
                return Err(InvalidNodes::Duplicate(node.address));
            }
            nodes.push(node);
        }
        Ok(nodes)
    }
}
