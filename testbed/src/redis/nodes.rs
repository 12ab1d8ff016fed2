//! The nodes of a lock that a majority grants.

use futures_util::future::try_join_all;

use super::Redis;

/// Independent Redis servers, none of which knows of the others, on Unix sockets.
///
/// They are empty: clients refuse them until somebody starts a cluster of them.
#[derive(Debug)]
pub struct RedlockNodes {
    nodes: Vec<Redis>,
}

/// How a node is started.
#[derive(Clone, Copy, Debug)]
pub enum NodeKind<'a> {
    /// With further arguments of `redis-server`, each word by itself.
    With(&'a [&'a str]),
    /// With a wall clock of its own, which can [`jump`](Redis::jump).
    OwnClock,
}

impl NodeKind<'_> {
    /// It keeps nothing on disk.
    pub const FORGETFUL: Self = Self::With(&[]);
    /// It answers only when what it did is on disk.
    pub const DURABLE: Self = Self::With(&["--appendonly", "yes", "--appendfsync", "always"]);

    async fn start(self) -> anyhow::Result<Redis> {
        match self {
            Self::With(arguments) => Redis::start_with(arguments).await,
            Self::OwnClock => Redis::start_with_own_clock(&[]).await,
        }
    }
}

impl RedlockNodes {
    /// Starts a node of each of these kinds, all at once, and waits until all answer.
    ///
    /// # Errors
    /// If one of them doesn't start.
    pub async fn start(kinds: &[NodeKind<'_>]) -> anyhow::Result<Self> {
        let nodes = try_join_all(kinds.iter().map(|kind| kind.start())).await?;
        Ok(Self { nodes })
    }

    /// Their URLs, in the order of their kinds.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// The nodes, in the same order.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The nodes, to pause, kill or restart.
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }
}
