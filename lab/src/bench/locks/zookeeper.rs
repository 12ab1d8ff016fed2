//! Locks in ZooKeeper.

mod raw;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use lock_client::backend::Backend;
use serde_json::json;
use tokio::sync::Mutex;

use self::raw::RawConnection;
use super::{
    python::{Package, Python},
    service::{ANSWER_TIMEOUT, About, Durable, Service},
};
use crate::bench::{
    subject::{Subject, Times},
    work::Work,
};

/// The node that the raw connection makes.
const NODE: &str = "/least";

/// A ZooKeeper, a raw connection to it, and Python's client.
pub(super) struct ZooKeeper {
    zookeeper: testbed::ZooKeeper,
    raw: Mutex<RawConnection>,
    kazoo: Python,
    /// The messages that were not sent for our locks.
    foreign: AtomicU64,
}

impl ZooKeeper {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let zookeeper = testbed::ZooKeeper::start().await?;
        let address = zookeeper.plain_address(0);
        Ok(Self {
            raw: Mutex::new(RawConnection::open(address).await?),
            kazoo: Python::start(Package::Kazoo, &address.to_string())?,
            zookeeper,
            foreign: AtomicU64::new(0),
        })
    }
}

#[async_trait]
impl Service for ZooKeeper {
    fn url(&self) -> String {
        self.zookeeper.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        let zookeeper = lock_client::zookeeper::ZooKeeper::open(&self.url())?;
        Ok(Arc::new(zookeeper.answer_within(ANSWER_TIMEOUT)))
    }

    async fn round_trip(&self) -> anyhow::Result<()> {
        self.foreign.fetch_add(1, Ordering::Relaxed);
        self.raw.lock().await.exists("/").await
    }

    async fn work(&self) -> anyhow::Result<Option<Work>> {
        let received = self.zookeeper.received(0).await?;
        // This question is a message too.
        let foreign = self.foreign.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Work::of_commands(received - foreign)))
    }
}

impl Durable for ZooKeeper {
    fn about(&self) -> About {
        About {
            name: "zookeeper",
            title: "ZooKeeper of one member, over TCP",
            command: "messages that ZooKeeper received, other than the holders' reads",
            goal_of_least: 1.4,
        }
    }

    fn beside(&self, acquires: usize) -> Vec<Subject<'_, Times>> {
        vec![
            Subject::timed("create and delete a node", acquires, move || async move {
                let mut raw = self.raw.lock().await;
                raw.create(NODE).await?;
                raw.delete(NODE).await
            }),
            Subject::timed("a read", acquires, move || self.round_trip()),
            Subject::timed("connect a session and close it", acquires, move || async move {
                let address = self.zookeeper.plain_address(0);
                RawConnection::open(address).await?.close_session().await
            }),
            Subject::new("kazoo: acquire, release", acquires, move |count| async move {
                let request = json!({ "what": "cycles", "count": count, "name": "lock" });
                Ok(Times { times: self.kazoo.measure(&request).await?, work: Vec::new() })
            }),
        ]
    }
}
