//! Everything that is measured in rounds.

use fence::ResourceName;

use super::{cluster::Cluster, hung::Hung};
use crate::bench::{
    peer::name,
    series::{Part, Series},
};

/// The parts of a round with all nodes up. They alternate between the kinds of lock, so that a
/// moment in which the machine is slow affects all kinds alike.
const PARTS: usize = 10;
/// The calls of one round trip to acquire and one to release. Another round trip adds a call.
const EVALSHAS: u64 = 2;

/// How often each kind of lock is measured in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) acquires: usize,
    pub(super) waiting_acquires: usize,
}

#[derive(Debug)]
pub(super) struct Measurements {
    /// On clusters of one, three and five nodes.
    pub(super) all_up: [Pair; 3],
    /// On the cluster of five.
    pub(super) hung: Hung,
}

/// Ours and rslock on the same nodes.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) nodes: usize,
    pub(super) fenced: Series,
    pub(super) rslock: Series,
    /// How many calls of EVALSHA by ours the nodes saw too many or too few.
    unexpected_evalshas: u64,
}

impl Measurements {
    pub(super) fn new() -> Self {
        Self {
            all_up: [
                Pair::new(1, "1 node: acquire, token, release", "1 node, rslock: acquire, release"),
                Pair::new(3, "3 nodes", "3 nodes, rslock"),
                Pair::new(5, "5 nodes", "5 nodes, rslock"),
            ],
            hung: Hung::new(),
        }
    }

    pub(super) async fn add_round(
        &mut self,
        round: usize,
        Counts { acquires, waiting_acquires }: Counts,
        clusters: &mut [Cluster; 3],
    ) -> anyhow::Result<()> {
        self.measure_all_up(acquires, clusters).await?;
        self.hung.add_round(round, acquires, waiting_acquires, &mut clusters[2]).await
    }

    pub(super) async fn measure_all_up(
        &mut self,
        acquires: usize,
        clusters: &mut [Cluster; 3],
    ) -> anyhow::Result<()> {
        let names = vec![name("same"); acquires.div_ceil(PARTS)];
        for _ in 0..PARTS {
            for (pair, cluster) in self.all_up.iter_mut().zip(&mut *clusters) {
                pair.measure(&names, cluster).await?;
            }
        }
        Ok(())
    }
}

impl Pair {
    fn new(nodes: usize, fenced: &'static str, rslock: &'static str) -> Self {
        let (fenced, rslock) = (Series::new(fenced), Series::new(rslock));
        Self { nodes, fenced, rslock, unexpected_evalshas: 0 }
    }

    async fn measure(
        &mut self,
        names: &[ResourceName],
        cluster: &mut Cluster,
    ) -> anyhow::Result<()> {
        let (times, nodes) = cluster.cycles(&cluster.fenced.clone(), names).await?;
        let expected = EVALSHAS * names.len() as u64;
        self.unexpected_evalshas +=
            nodes.iter().map(|work| work.calls_of("evalsha").abs_diff(expected)).sum::<u64>();
        self.fenced.add(Part { times, work: nodes.into_iter().sum() });
        let (times, nodes) = cluster.cycles(&cluster.rslock.clone(), names).await?;
        self.rslock.add(Part { times, work: nodes.into_iter().sum() });
        Ok(())
    }

    /// A lower bound of the part of the acquires that took one round trip. A seal or a second round
    /// shows as a further EVALSHA on a node, but so does a seal that nobody waited for.
    pub(super) fn in_one_round_trip(&self) -> f64 {
        1.0 - self.fenced.mean(self.unexpected_evalshas)
    }
}
