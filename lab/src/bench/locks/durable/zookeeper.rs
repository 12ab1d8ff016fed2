//! Locks in ZooKeeper.

mod raw;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lock_client::backend::Backend;
use serde_json::json;
use tokio::sync::Mutex;

use self::raw::RawConnection;
use super::{
    super::{
        hold::RoundTrip,
        python::{Package, Python},
    },
    server::{ANSWER_TIMEOUT, Other, Server},
};

/// The node that the raw connection makes.
const NODE: &str = "/least";

/// A ZooKeeper, a raw connection to it, and Python's client.
pub(in super::super) struct ZooKeeper {
    zookeeper: testbed::ZooKeeper,
    raw: Mutex<RawConnection>,
    kazoo: Mutex<Python>,
    /// The messages that were not sent for our locks.
    foreign: AtomicU64,
}

impl ZooKeeper {
    pub(in super::super) async fn start() -> anyhow::Result<Self> {
        let zookeeper = testbed::ZooKeeper::start().await?;
        let address = zookeeper.plain_address(0);
        Ok(Self {
            raw: Mutex::new(RawConnection::open(address).await?),
            kazoo: Mutex::new(Python::start(Package::Kazoo, &address.to_string())?),
            zookeeper,
            foreign: AtomicU64::new(0),
        })
    }
}

#[async_trait]
impl RoundTrip for ZooKeeper {
    async fn round_trip(&self) -> anyhow::Result<()> {
        self.foreign.fetch_add(1, Ordering::Relaxed);
        self.raw.lock().await.exists("/").await
    }
}

#[async_trait]
impl Server for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn title(&self) -> &'static str {
        "ZooKeeper of one member, over TCP"
    }

    fn url(&self) -> String {
        self.zookeeper.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        Ok(Arc::new(
            lock_client::zookeeper::ZooKeeper::open(&self.url())?.answer_within(ANSWER_TIMEOUT),
        ))
    }

    fn least_subject(&self) -> &'static str {
        "create and delete a node"
    }

    async fn least(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let mut raw = self.raw.lock().await;
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            raw.create(NODE).await?;
            raw.delete(NODE).await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    fn goal_of_least(&self) -> f64 {
        1.4
    }

    fn round_trip_subject(&self) -> &'static str {
        "a read"
    }

    fn others(&self) -> &'static [Other] {
        &[
            Other { subject: "connect a session and close it", once_in: 1 },
            Other { subject: "kazoo: acquire, release", once_in: 1 },
        ]
    }

    async fn measure_other(&self, number: usize, count: usize) -> anyhow::Result<Vec<Duration>> {
        if number == 1 {
            let request = json!({ "what": "cycles", "count": count, "name": "lock" });
            return self.kazoo.lock().await.measure(&request).await;
        }
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            RawConnection::open(self.zookeeper.plain_address(0)).await?.close_session().await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    fn command(&self) -> &'static str {
        "messages that ZooKeeper received, other than the holders' reads"
    }

    async fn commands(&self) -> anyhow::Result<Option<u64>> {
        let received = self.zookeeper.received(0).await?;
        // This question is a message too.
        let foreign = self.foreign.fetch_add(1, Ordering::Relaxed);
        Ok(Some(received - foreign))
    }
}
