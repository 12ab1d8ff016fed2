//! What is measured while one of the nodes hangs.

use std::time::Duration;

use super::{cluster::Cluster, lines::name};
use crate::bench::{
    line::Line,
    peer::{self, Peer},
};

/// What is measured while one of the nodes hangs.
#[derive(Debug)]
pub(super) struct Hung {
    /// Ours, while the one hangs that was named first.
    pub(super) first: Line,
    /// Ours, while the one hangs that was named last.
    pub(super) last: Line,
    /// It waits for all nodes.
    pub(super) rslock: Line,
    /// How long it took at most until a node that went on was owned again.
    pub(super) back_within: Duration,
}

impl Hung {
    pub(super) fn new() -> Self {
        Self {
            first: Line::new("5 nodes, the first hung"),
            last: Line::new("5 nodes, the last hung"),
            rslock: Line::new("5 nodes, the last hung, rslock"),
            back_within: Duration::ZERO,
        }
    }

    /// Adds a round: so many acquires of ours, and so many of rslock.
    pub(super) async fn measure(
        &mut self,
        round: usize,
        (acquires, waiting): (usize, usize),
        cluster: &mut Cluster,
    ) -> anyhow::Result<()> {
        let last = cluster.len() - 1;
        let ours = cluster.fenced.clone();
        cluster.hang(0).await?;
        measure(&mut self.first, &ours, &format!("first/{round}"), acquires).await?;
        self.go_on(cluster, 0, round).await?;
        cluster.hang(last).await?;
        measure(&mut self.last, &ours, &format!("last/{round}"), acquires).await?;
        let theirs = cluster.rslock.clone();
        measure(&mut self.rslock, &theirs, &format!("last/{round}"), waiting).await?;
        self.go_on(cluster, last, round).await
    }

    async fn go_on(
        &mut self,
        cluster: &mut Cluster,
        node: usize,
        round: usize,
    ) -> anyhow::Result<()> {
        let back_after = cluster.go_on(node, round).await?;
        self.back_within = self.back_within.max(back_after);
        Ok(())
    }
}

async fn measure<P: Peer>(
    line: &mut Line,
    peer: &P,
    same: &str,
    count: usize,
) -> anyhow::Result<()> {
    line.samples.extend(peer::cycles(peer, &vec![name(same); count]).await?);
    Ok(())
}
