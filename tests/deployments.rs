//! What each kind of deployment of Redis guarantees: whether two clients may hold a lock at once
//! after a fault, and whether data is lost then, with the fence and without.
//!
//! The table in `lock-client/README.md` names these tests.

use std::time::Duration;

use lock_client::{
    AcquireError, Lease, Locks,
    redlock::Redlock,
    storage::{FencedError, FencedResource, Storage},
};
use testbed::{NodeKind, Redis, RedlockNodes, StorageServer};

use crate::programs::storage_server;
use crate::start_cluster::start_cluster;
use crate::{
    lock_service::{lasting, locks},
    names::name,
};

const TEXT: &str = "text/plain";
const MINUTE: Duration = Duration::from_secs(60);
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
/// Longer than the leases here, which last for ten minutes.
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// The outcome when a second client asks for a lock that the first believes to hold.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    /// It did not get the lock.
    Excluded,
    /// It could not learn who holds the lock, and did not get it.
    NoMajority,
    /// It got the lock too, with a token that compares so with the first. Then it read and wrote,
    /// and then the first wrote.
    TwoHolders { token: Ordering, with_the_fence: Write, without: Write },
}

/// How the second token compares with the first.
#[derive(Debug, PartialEq, Eq)]
enum Ordering {
    Higher,
    Same,
}

/// The fate of the first client's write.
#[derive(Debug, PartialEq, Eq)]
enum Write {
    Refused,
    Overwrote,
}

const TWO_HOLDERS: Then = Then::TwoHolders {
    token: Ordering::Higher,
    with_the_fence: Write::Refused,
    without: Write::Overwrote,
};

/// A storage without the fence, and one with it. In this order: a lease that was refused once is
/// over.
struct Storages([StorageServer; 2]);

/// A client that holds the lock, and has read what it is about to write.
struct First {
    lease: Lease,
    resources: [FencedResource; 2],
}

impl Storages {
    async fn start() -> Self {
        let (program, off) = (storage_server(), ["--enforcement", "off"]);
        let (fenced, unfenced) =
            tokio::join!(StorageServer::start(&program, &[]), StorageServer::start(&program, &off));
        Self([unfenced.unwrap(), fenced.unwrap()])
    }

    fn under(&self, lease: &Lease) -> [FencedResource; 2] {
        let under =
            |server: &StorageServer| Storage::new(server.url()).unwrap().under(lease, lease.name());
        [under(&self.0[0]), under(&self.0[1])]
    }

    async fn first(&self, locks: &Locks, lock: &str) -> First {
        let lease = locks.acquire(&name(lock), lasting()).await.unwrap();
        locks.wait_for_background().await;
        let resources = self.under(&lease);
        for resource in &resources {
            resource.read().await.unwrap();
        }
        First { lease, resources }
    }

    /// Lets a second client ask for the lock that the first believes to hold.
    async fn then(&self, first: First, locks: &Locks) -> Then {
        let issued = first.lease.token().unwrap();
        let lease = match locks.acquire(first.lease.name(), lasting()).await {
            Ok(lease) => lease,
            Err(AcquireError::Contended { .. }) => return Then::Excluded,
            Err(AcquireError::Rejected { .. } | AcquireError::Unavailable { .. }) => {
                return Then::NoMajority;
            }
            Err(error) => panic!("{error}"),
        };
        let token = match lease.token().unwrap().cmp(&issued) {
            std::cmp::Ordering::Greater => Ordering::Higher,
            std::cmp::Ordering::Equal => Ordering::Same,
            std::cmp::Ordering::Less => panic!("{:?} is below {issued}", lease.token()),
        };
        let mut writes = Vec::new();
        for (second, first) in self.under(&lease).iter().zip(&first.resources) {
            second.read().await.unwrap();
            second.write(TEXT, "second").await.unwrap();
            writes.push(match first.write(TEXT, "first").await {
                Ok(_) => Write::Overwrote,
                Err(FencedError::Lost { refusal: Some(_), .. }) => Write::Refused,
                Err(error) => panic!("{error}"),
            });
        }
        let [without, with_the_fence] = writes.try_into().unwrap();
        Then::TwoHolders { token, with_the_fence, without }
    }
}

#[tokio::test]
async fn one_node_that_keeps_nothing() {
    let storages = Storages::start().await;
    let mut redis = Redis::start_with_own_clock(&[]).await.unwrap();
    let locks = locks(&redis.url());

    let first = storages.first(&locks, "undisturbed").await;
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "clock-jump").await;
    redis.jump(TEN_MINUTES + MINUTE).unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);

    let first = storages.first(&locks, "restart").await;
    redis.restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);
}

#[tokio::test]
async fn one_node_that_synchronises_every_write() {
    let storages = Storages::start().await;
    let mut redis = Redis::start_with_own_clock(&DURABLE).await.unwrap();
    let locks = locks(&redis.url());

    let first = storages.first(&locks, "restart").await;
    redis.restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "clock-jump").await;
    redis.jump(TEN_MINUTES + MINUTE).unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);
}

#[tokio::test]
async fn primary_whose_replica_takes_over() {
    let storages = Storages::start().await;
    let primary = Redis::start().await.unwrap();
    let locks_at_first = locks(&primary.url());
    // The replica receives this grant and its release, but not the next grant.
    let heard_of = locks_at_first.acquire(&name("failover"), lasting()).await.unwrap();
    heard_of.release().await.unwrap();
    let replica = Redis::replica_of(&primary).await.unwrap();
    replica.cut();
    let first = storages.first(&locks_at_first, "failover").await;
    replica.promote().await.unwrap();
    let then = storages.then(first, &locks(&replica.redis().url())).await;
    let with_the_fence = Write::Refused;
    assert_eq!(
        then,
        Then::TwoHolders { token: Ordering::Same, with_the_fence, without: Write::Overwrote }
    );
}

#[tokio::test]
async fn redlock_on_three_nodes() {
    let storages = Storages::start().await;
    let kinds = [NodeKind::OwnClock, NodeKind::OwnClock, NodeKind::FORGETFUL];
    let mut nodes = RedlockNodes::start(&kinds).await.unwrap();
    start_cluster(&nodes, TEN_MINUTES).await;
    let locks = Locks::from(Redlock::open(nodes.urls()).unwrap());

    // One clock that jumps frees one node, which is no majority.
    let first = storages.first(&locks, "clock-jump").await;
    nodes.nodes()[0].jump(TEN_MINUTES + MINUTE).unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "clocks-jump").await;
    for node in &nodes.nodes()[..2] {
        node.jump(TEN_MINUTES + MINUTE).unwrap();
    }
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);

    // A node that came up with nothing has no vote.
    let first = storages.first(&locks, "restart").await;
    nodes.nodes_mut()[2].restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "restarts").await;
    nodes.nodes_mut()[1].restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::NoMajority);
}

/// No setting proves what a restarted node has kept, so none brings its vote back.
#[tokio::test]
async fn redlock_on_three_nodes_that_synchronise_every_write() {
    let storages = Storages::start().await;
    let mut nodes = RedlockNodes::start(&[NodeKind::DURABLE; 3]).await.unwrap();
    start_cluster(&nodes, TEN_MINUTES).await;
    let locks = Locks::from(Redlock::open(nodes.urls()).unwrap());
    let first = storages.first(&locks, "restarts").await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "all-restart").await;
    for node in nodes.nodes_mut() {
        node.restart().await.unwrap();
    }
    assert_eq!(storages.then(first, &locks).await, Then::NoMajority);
}
