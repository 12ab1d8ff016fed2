//! All that is measured in rounds.

use fence::ResourceName;

use super::{cluster::Cluster, hung::Hung};
use crate::bench::line::Line;

/// What takes microseconds has several turns in a round: a machine that does something else for a
/// moment is then in the way of all alike.
const TURNS: usize = 10;
/// To acquire, and to release: more is another round trip.
const EVALSHAS: u64 = 2;

/// The nodes that are measured on.
pub(super) struct Clusters {
    one: Cluster,
    three: Cluster,
    five: Cluster,
}

impl Clusters {
    pub(super) async fn start() -> anyhow::Result<Self> {
        Ok(Self {
            one: Cluster::start(1).await?,
            three: Cluster::start(3).await?,
            five: Cluster::start(5).await?,
        })
    }
}

/// All things that are measured in rounds.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) one: Pair,
    pub(super) three: Pair,
    pub(super) five: Pair,
    pub(super) hung: Hung,
}

/// Ours, and rslock, on the same nodes.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) nodes: usize,
    pub(super) fenced: Line,
    pub(super) rslock: Line,
    /// How many EVALSHAs the nodes saw of ours that were not one to acquire and one to release.
    odd_evalshas: u64,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self {
            one: Pair::new(
                1,
                "1 node: acquire, token, release",
                "1 node, rslock: acquire, release",
            ),
            three: Pair::new(3, "3 nodes", "3 nodes, rslock"),
            five: Pair::new(5, "5 nodes", "5 nodes, rslock"),
            hung: Hung::new(),
        }
    }

    /// Adds a round: so many acquires of each, and so many of rslock while it waits for a node.
    pub(super) async fn measure(
        &mut self,
        round: usize,
        (acquires, waiting): (usize, usize),
        clusters: &mut Clusters,
    ) -> anyhow::Result<()> {
        self.measure_all_up(acquires, clusters).await?;
        self.hung.measure(round, (acquires, waiting), &mut clusters.five).await
    }

    /// Adds what a round has while no node hangs.
    pub(super) async fn measure_all_up(
        &mut self,
        acquires: usize,
        Clusters { one, three, five }: &mut Clusters,
    ) -> anyhow::Result<()> {
        let names = vec![name("same"); acquires.div_ceil(TURNS)];
        for _ in 0..TURNS {
            self.one.measure(&names, one).await?;
            self.three.measure(&names, three).await?;
            self.five.measure(&names, five).await?;
        }
        Ok(())
    }

    pub(super) fn pairs(&self) -> [&Pair; 3] {
        [&self.one, &self.three, &self.five]
    }
}

impl Pair {
    fn new(nodes: usize, fenced: &'static str, rslock: &'static str) -> Self {
        Self { nodes, fenced: Line::new(fenced), rslock: Line::new(rslock), odd_evalshas: 0 }
    }

    async fn measure(
        &mut self,
        names: &[ResourceName],
        cluster: &mut Cluster,
    ) -> anyhow::Result<()> {
        let (samples, nodes) = cluster.cycles(&cluster.fenced.clone(), names).await?;
        let expected = EVALSHAS * names.len() as u64;
        self.odd_evalshas +=
            nodes.iter().map(|work| work.calls_of("evalsha").abs_diff(expected)).sum::<u64>();
        self.fenced.add((samples, nodes.into_iter().sum()));
        let (samples, nodes) = cluster.cycles(&cluster.rslock.clone(), names).await?;
        self.rslock.add((samples, nodes.into_iter().sum()));
        Ok(())
    }

    /// The part of the acquires that took one round trip, at least: each further one, a seal or a second
    /// round, shows as an EVALSHA on a node, but so does a seal that nobody waited for.
    pub(super) fn in_one_round_trip(&self) -> f64 {
        1.0 - self.fenced.each(self.odd_evalshas)
    }
}

pub(super) fn name(name: &str) -> ResourceName {
    name.parse().expect("the names of this bench are names")
}
