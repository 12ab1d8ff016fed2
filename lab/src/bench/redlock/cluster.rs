//! Nodes that keep locks together, and who is measured on them.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fence::ResourceName;
use tokio::time::sleep;

use crate::bench::{
    peer::{self, Fenced, Peer, RsLock},
    samples::Samples,
    work::{Meter, Work},
};
use crate::programs::built;
use testbed::Redis;

/// How long a node may take, when it goes on, until it is one of those that own a lock.
const BACK_WITHIN: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One Redis, or an odd number of independent ones.
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

    /// Acquires and releases a lock of each name, one after the other. The work is that of each node.
    pub(super) async fn cycles<P: Peer>(
        &mut self,
        peer: &P,
        names: &[ResourceName],
    ) -> anyhow::Result<(Samples, Vec<Work>)> {
        let before = self.work().await?;
        let samples = peer::cycles(peer, names).await?;
        // A majority has answered; the others are still asked.
        peer.settled().await;
        let after = self.work().await?;
        Ok((
            samples,
            after.iter().zip(&before).map(|(after, before)| after.since(before)).collect(),
        ))
    }

    /// Stops a node where it is.
    pub(super) async fn hang(&mut self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].process().pause().await
    }

    /// Lets a node go on, and waits until all nodes own a lock again. Answers how long that took.
    pub(super) async fn go_on(&mut self, node: usize, round: usize) -> anyhow::Result<Duration> {
        self.nodes[node].process().resume()?;
        let begun = Instant::now();
        // What was asked of it before the end of its hanging may have left it the lock of a name.
        for attempt in 0.. {
            if self.all_own(&format!("back/{round}/{node}/{attempt}")).await? {
                break;
            }
            ensure!(begun.elapsed() < BACK_WITHIN, "a node that went on owns no lock");
            sleep(POLL_INTERVAL).await;
        }
        Ok(begun.elapsed())
    }

    /// Acquires a lock, and tells whether all nodes own it alike.
    async fn all_own(&self, name: &str) -> anyhow::Result<bool> {
        let key = format!("fenced:{{{name}}}:lock");
        let lease = self.fenced.acquire(&name.parse()?).await?;
        self.fenced.settled().await;
        let mut owners = Vec::new();
        for node in &self.nodes {
            owners.push(node.command::<Option<String>>(&["GET", &key]).await?);
        }
        self.fenced.release(lease).await?;
        self.fenced.settled().await;
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

/// Makes the nodes a cluster, by the command that a newcomer has for it.
fn initialise(urls: &[String]) -> anyhow::Result<()> {
    let mut command = built("lock-client")?.command();
    command.args(["node", "init"]).args(urls.iter().flat_map(|url| ["--redis", url]));
    let output = command.output().context("can't run lock-client")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the nodes were not initialised: {error}");
    Ok(())
}
