//! Clusters of independent Redis nodes, and the lock clients that are measured on them.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use fence::ResourceName;
use testbed::Redis;
use tokio::{sync::Mutex, time::sleep};

use crate::{
    bench::{
        peer::{self, Fenced, Peer, RsLock, new_name},
        subject::Times,
        work::{Meter, Work},
    },
    programs::lock_client,
};

/// How long a resumed node may take until it owns locks again.
const BACK_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One Redis, or an odd number of independent nodes.
pub(super) struct Cluster {
    nodes: Mutex<Vec<Redis>>,
    meters: Vec<Meter>,
    pub(super) fenced: Fenced,
    pub(super) rslock: RsLock,
    /// The longest time until a resumed node owned locks again.
    pub(super) back_within: Cell<Duration>,
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
            [url] => Fenced::over(lock_client::redis::Redis::open(url)?)?,
            urls => {
                initialise(urls)?;
                Fenced::over(lock_client::redlock::Redlock::open(urls)?)?
            }
        };
        let rslock = RsLock::open(&urls)?;
        let back_within = Cell::new(Duration::ZERO);
        Ok(Self { nodes: Mutex::new(nodes), meters, fenced, rslock, back_within })
    }

    /// Acquires and releases a lock repeatedly. Returns the times, and the work of each node.
    pub(super) async fn cycles<P: Peer>(
        &self,
        peer: &P,
        name: ResourceName,
        count: usize,
    ) -> anyhow::Result<Times> {
        let before = self.work().await?;
        let times = peer::cycles(peer, &vec![name; count]).await?;
        // A majority has answered; requests to the other nodes may still be under way.
        peer.finish_background_work().await;
        let after = self.work().await?;
        let work = after.iter().zip(&before).map(|(after, before)| after.since(before));
        Ok(Times { times, work: work.collect() })
    }

    /// The same while one node hangs. It must own locks again afterwards.
    pub(super) async fn cycles_while_one_hangs<P: Peer>(
        &self,
        hung: usize,
        peer: &P,
        count: usize,
    ) -> anyhow::Result<Times> {
        let mut nodes = self.nodes.lock().await;
        nodes[hung].process().pause().await?;
        let times = peer::cycles(peer, &vec![new_name(); count]).await?;
        nodes[hung].process().resume()?;
        let begun = Instant::now();
        while !self.all_own(&nodes).await? {
            ensure!(begun.elapsed() < BACK_TIMEOUT, "a resumed node owns no lock");
            sleep(POLL_INTERVAL).await;
        }
        self.back_within.set(self.back_within.get().max(begun.elapsed()));
        Ok(Times { times, work: Vec::new() })
    }

    /// Acquires a lock, and returns whether all nodes have it with the same owner. The name is a new one,
    /// because a request that was sent while a node hung may have locked an earlier name on it.
    async fn all_own(&self, nodes: &[Redis]) -> anyhow::Result<bool> {
        let name = new_name();
        let lease = self.fenced.acquire(&name).await?;
        self.fenced.finish_background_work().await;
        let mut owners = Vec::new();
        for node in nodes {
            let key = format!("fenced:{{{name}}}:lock");
            owners.push(node.command::<Option<String>>(&["GET", &key]).await?);
        }
        self.fenced.release(lease).await?;
        self.fenced.finish_background_work().await;
        Ok(owners.iter().all(|owner| owner.is_some() && *owner == owners[0]))
    }

    async fn work(&self) -> anyhow::Result<Vec<Work>> {
        let mut work = Vec::new();
        for meter in &self.meters {
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
