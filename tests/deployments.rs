//! What each kind of deployment guarantees: whether two clients may hold a lock at once after a fault,
//! and whether data is lost then, with the fence and without.
//!
//! The tables in `lock-client/README.md` name these tests.

mod etcd;
mod redis;
mod sql;
mod sqlite;
mod zookeeper;

use std::time::Duration;

use lock_client::{
    AcquireError, Lease, Locks,
    storage::{FencedError, FencedResource, Storage},
};
use testbed::StorageServer;

use crate::programs::storage_server;
use crate::{lock_service::lasting, names::name};

const TEXT: &str = "text/plain";
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than the leases here, which last for ten minutes.
const TEN_MINUTES: Duration = Duration::from_secs(600);
const YEAR: Duration = Duration::from_secs(366 * 86_400);
/// Leases that expire in the test last for so long.
const SHORT_MS: u64 = 3_000;
/// How long such a lease may take to expire on a busy machine.
const LONGEST_EXPIRY: Duration = Duration::from_secs(30);

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
    Rejected,
    Overwrote,
}

const TWO_HOLDERS: Then = Then::TwoHolders {
    token: Ordering::Higher,
    with_the_fence: Write::Rejected,
    without: Write::Overwrote,
};

/// The second holder continues with a higher token.
const TWO_HOLDERS_OF_ONE_TOKEN: Then = Then::TwoHolders {
    token: Ordering::Same,
    with_the_fence: Write::Rejected,
    without: Write::Overwrote,
};

/// A storage without the fence, and one with it. In this order: a lease that was rejected once is
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
                Err(FencedError::Lost { rejection: Some(_), .. }) => Write::Rejected,
                Err(error) => panic!("{error}"),
            });
        }
        let [without, with_the_fence] = writes.try_into().unwrap();
        Then::TwoHolders { token, with_the_fence, without }
    }
}
