//! Locks while one of the nodes hangs.

use std::time::Duration;

use super::cluster::Cluster;
use crate::bench::{
    peer::{self, Peer, name},
    series::{Part, Series},
    work::Work,
};

#[derive(Debug)]
pub(super) struct Hung {
    /// Ours, while the first node of the list hangs.
    pub(super) first: Series,
    /// Ours, while the last node of the list hangs.
    pub(super) last: Series,
    /// rslock, which waits for all nodes.
    pub(super) rslock: Series,
    /// The longest time until a resumed node owned locks again.
    pub(super) back_within: Duration,
}

impl Hung {
    pub(super) fn new() -> Self {
        Self {
            first: Series::new("5 nodes, the first hung"),
            last: Series::new("5 nodes, the last hung"),
            rslock: Series::new("5 nodes, the last hung, rslock"),
            back_within: Duration::ZERO,
        }
    }

    pub(super) async fn add_round(
        &mut self,
        round: usize,
        acquires: usize,
        waiting_acquires: usize,
        cluster: &mut Cluster,
    ) -> anyhow::Result<()> {
        let last = cluster.len() - 1;
        cluster.pause(0).await?;
        measure(&mut self.first, &cluster.fenced, &format!("first/{round}"), acquires).await?;
        let first_back_after = cluster.resume(0, round).await?;
        cluster.pause(last).await?;
        let name = format!("last/{round}");
        measure(&mut self.last, &cluster.fenced, &name, acquires).await?;
        measure(&mut self.rslock, &cluster.rslock, &name, waiting_acquires).await?;
        let last_back_after = cluster.resume(last, round).await?;
        self.back_within = self.back_within.max(first_back_after).max(last_back_after);
        Ok(())
    }
}

async fn measure<P: Peer>(
    series: &mut Series,
    peer: &P,
    same: &str,
    count: usize,
) -> anyhow::Result<()> {
    let times = peer::cycles(peer, &vec![name(same); count]).await?;
    series.add(Part { times, work: Work::default() });
    Ok(())
}
