//! The nodes of Redlock, a lock that a majority of them grants.

use futures_util::future::try_join_all;

use super::server::Redis;

/// Independent Redis servers on Unix sockets, which don't know each other.
///
/// They are empty: clients reject them until an operator has started a cluster of them.
#[derive(Debug)]
pub struct RedlockNodes {
    nodes: Vec<Redis>,
}

/// Answers come only when changes are on disk.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The way in which a node is started.
#[derive(Clone, Copy, Debug)]
pub enum NodeKind<'a> {
    /// With further arguments of `redis-server`, each word by itself.
    With(&'a [&'a str]),
    /// One that answers only when its changes are on disk, with a wall clock of its own, which can
    /// [`jump`](Redis::jump).
    OwnClock,
}

impl NodeKind<'_> {
    /// A node that keeps nothing on disk.
    pub const FORGETFUL: Self = Self::With(&[]);
    /// A node that answers only when its changes are on disk.
    pub const DURABLE: Self = Self::With(&DURABLE);

    async fn start(self) -> anyhow::Result<Redis> {
        match self {
            Self::With(arguments) => Redis::start_with(arguments).await,
            Self::OwnClock => Redis::start_with_own_clock(&DURABLE).await,
        }
    }
}

impl RedlockNodes {
    /// Starts a node of each kind, all at once, and waits until all answer.
    ///
    /// # Errors
    /// If one of them doesn't start.
    pub async fn start(kinds: &[NodeKind<'_>]) -> anyhow::Result<Self> {
        let nodes = try_join_all(kinds.iter().map(|kind| kind.start())).await?;
        Ok(Self { nodes })
    }

    /// Returns their URLs, in the order of the kinds.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Returns the nodes, in the order of the kinds.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Returns the nodes, to pause, kill or restart them.
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }
}
