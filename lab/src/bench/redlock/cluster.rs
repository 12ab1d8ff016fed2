//! Clusters of independent Redis nodes, and the lock clients that are measured on them.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fence::ResourceName;
use testbed::Redis;
use tokio::time::sleep;

use crate::{
    bench::{
        peer::{self, Fenced, Peer, RsLock},
        work::{Meter, Work},
    },
    programs::lock_client,
};

/// How long a resumed node may take until it owns locks again.
const BACK_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One Redis, or an odd number of independent nodes.
pub(super) struct Cluster {
    nodes: Vec<Redis>,
    meters: Vec<Meter>,
    pub(super) fenced: Fenced,
    pub(super) rslock: RsLock,
}

impl Cluster {
    pub(super) async fn start(count: usize) -> anyhow::Result<Self> {
        let (mut nodes, mut meters) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let node = Redis::start_on_tcp(&[]).await?;
            meters.push(Meter::connect(&node).await?);
            nodes.push(node);
        }
        let urls: Vec<_> = nodes.iter().map(Redis::url).collect();
        let fenced = match &urls[..] {
            [url] => Fenced::open(url)?,
            urls => {
                initialise(urls)?;
                Fenced::open_redlock(urls)?
            }
        };
        let rslock = RsLock::open(&urls)?;
        Ok(Self { nodes, meters, fenced, rslock })
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Acquires and releases a lock of each name, one after the other. Returns the times, and the
    /// work of each node.
    pub(super) async fn cycles<P: Peer>(
        &mut self,
        peer: &P,
        names: &[ResourceName],
    ) -> anyhow::Result<(Vec<Duration>, Vec<Work>)> {
        let before = self.work().await?;
        let times = peer::cycles(peer, names).await?;
        // A majority has answered; requests to the other nodes may still be under way.
        peer.finish_background_work().await;
        let after = self.work().await?;
        let work = after.iter().zip(&before).map(|(after, before)| after.since(before));
        Ok((times, work.collect()))
    }

    pub(super) async fn pause(&mut self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].process().pause().await
    }

    /// Resumes a node, and waits until all nodes own a lock again. Returns how long that took.
    pub(super) async fn resume(&mut self, node: usize, round: usize) -> anyhow::Result<Duration> {
        self.nodes[node].process().resume()?;
        let begun = Instant::now();
        // Each attempt uses a new name, because a request that was sent while the node hung may
        // have locked an earlier name on it.
        for attempt in 0.. {
            if self.all_own(&format!("back/{round}/{node}/{attempt}")).await? {
                break;
            }
            ensure!(begun.elapsed() < BACK_TIMEOUT, "a resumed node owns no lock");
            sleep(POLL_INTERVAL).await;
        }
        Ok(begun.elapsed())
    }

    /// Acquires a lock, and returns whether all nodes have it with the same owner.
    async fn all_own(&self, name: &str) -> anyhow::Result<bool> {
        let key = format!("fenced:{{{name}}}:lock");
        let lease = self.fenced.acquire(&name.parse()?).await?;
        self.fenced.finish_background_work().await;
        let mut owners = Vec::new();
        for node in &self.nodes {
            owners.push(node.command::<Option<String>>(&["GET", &key]).await?);
        }
        self.fenced.release(lease).await?;
        self.fenced.finish_background_work().await;
        Ok(owners.iter().all(|owner| owner.is_some() && *owner == owners[0]))
    }

    async fn work(&mut self) -> anyhow::Result<Vec<Work>> {
        let mut work = Vec::new();
        for meter in &mut self.meters {
            work.push(meter.read().await?);
        }
        Ok(work)
    }
}

/// Initialises the nodes as a cluster, with the same command as a user.
fn initialise(urls: &[String]) -> anyhow::Result<()> {
    let mut command = lock_client()?.command();
    command.args(["node", "init"]).args(urls.iter().flat_map(|url| ["--locks", url]));
    let output = command.output().context("can't run lock-client")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the nodes were not initialised: {error}");
    Ok(())
}
