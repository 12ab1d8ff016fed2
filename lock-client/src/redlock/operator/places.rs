//! The addresses of all nodes of a cluster.

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
    },
};

/// The addresses of all nodes, in the order of their URLs.
pub(super) struct Places {
    urls: Vec<NodeUrl>,
    limits: TimeLimits,
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.urls.iter().map(|url| &url.address)).finish()
    }
}

impl Places {
    pub(super) fn new<U: AsRef<str>>(urls: &[U]) -> Result<Self, InvalidNodes> {
        Ok(Self { urls: NodeUrl::parse_all(urls)?, limits: TimeLimits::default() })
    }

    pub(super) fn answer_within(self, limits: TimeLimits) -> Self {
        Self { limits, ..self }
    }

    pub(super) fn len(&self) -> usize {
        self.urls.len()
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.len())
    }

    /// Returns the number of the node at a URL.
    pub(super) fn position(&self, url: &str) -> Result<usize, OperatorError> {
        let url = NodeUrl::parse(url).map_err(|error| OperatorError::Invalid(error.to_string()))?;
        let position = self.urls.iter().position(|known| known.address == url.address);
        position.ok_or_else(|| {
            OperatorError::Invalid(format!(
                "{} is none of the nodes of --redis: name it there, too",
                url.address
            ))
        })
    }

    /// Connects to one node.
    pub(super) async fn connect(&self, node: usize) -> Result<Peer, PeerError> {
        Peer::connect(&self.urls[node], self.len(), self.limits).await
    }

    /// Connects to all nodes.
    pub(super) async fn connect_all(&self) -> Vec<Result<Peer, PeerError>> {
        join_all((0..self.len()).map(|node| self.connect(node))).await
    }
}
