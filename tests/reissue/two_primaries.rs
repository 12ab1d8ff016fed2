//! A replica that was cut off and promoted, while both primaries stay reachable: two holders at
//! once, with the same token.

use super::*;
use crate::programs::storage_server;

/// Two clients, each of which holds the lock on its own primary.
struct TwoPrimaries {
    server: StorageServer,
    primary: Redis,
    _replica: testbed::Replica,
    a: Lease,
    b: Lease,
}

impl TwoPrimaries {
    /// Starts both with this token and the value 0.
    async fn with_token(number: u64) -> Self {
        let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
        let first = Fence { token: token(1), holder: fence::Holder::random() };
        let storage = Storage::new(server.url()).unwrap();
        let written = storage.write(&name("r"), &first, TEXT, "0").await.unwrap();
        assert_eq!(written, Answer::Accepted(1));

        let primary = redis_before(number).await;
        let replica = Redis::replica_of(&primary).await.unwrap();
        replica.cut();
        let a = acquire(&primary).await;
        replica.promote().await.unwrap();
        let b = acquire(replica.redis()).await;
        assert_eq!((a.token(), b.token()), (Ok(token(number)), Ok(token(number))));
        Self { server, primary, _replica: replica, a, b }
    }

    async fn value(&self) -> u64 {
        kept(&self.server).await.unwrap().0.parse().unwrap()
    }
}

/// A client that adds one to the value, in two steps.
trait Adder {
    async fn count(&self) -> u64;
    /// Returns whether the storage accepted it.
    async fn set(&self, count: u64) -> bool;
}

impl Adder for FencedResource {
    async fn count(&self) -> u64 {
        read(self).await.unwrap().unwrap().parse().unwrap()
    }

    async fn set(&self, count: u64) -> bool {
        match self.write(TEXT, count.to_string()).await {
            Ok(_) => true,
            Err(FencedError::Lost { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The broken variant: it reissues after every rejection, and sends the same write again.
struct Resending<'a> {
    storage: Storage,
    lease: &'a Lease,
}

impl<'a> Resending<'a> {
    fn new(server: &StorageServer, lease: &'a Lease) -> Self {
        Self { storage: Storage::new(server.url()).unwrap(), lease }
    }

    async fn until_accepted<T>(&self, ask: impl AsyncFn(Fence) -> Answer<T>) -> T {
        loop {
            match ask(self.lease.fence().unwrap()).await {
                Answer::Accepted(answer) => return answer,
                Answer::Rejected(rejection) => {
                    self.lease.reissue(rejection.highest_token).await.unwrap();
                }
            }
        }
    }
}

impl Adder for Resending<'_> {
    async fn count(&self) -> u64 {
        let ask = async |fence| self.storage.fenced_read(&name("r"), &fence).await.unwrap();
        text(&self.until_accepted(ask).await.unwrap()).parse().unwrap()
    }

    async fn set(&self, count: u64) -> bool {
        let count = count.to_string();
        let ask = async |fence| {
            self.storage.write(&name("r"), &fence, TEXT, count.clone()).await.unwrap()
        };
        self.until_accepted(ask).await;
        true
    }
}

/// Both read, then both write, A first. Returns which writes were accepted.
async fn race(a: &impl Adder, b: &impl Adder) -> [bool; 2] {
    let (read_by_a, read_by_b) = (a.count().await, b.count().await);
    [a.set(read_by_a + 1).await, b.set(read_by_b + 1).await]
}

#[tokio::test]
async fn no_update_is_lost_between_two_primaries() {
    let world = TwoPrimaries::with_token(33).await;
    let (a, b) = (under(&world.server, &world.a), under(&world.server, &world.b));

    assert_eq!(a.count().await, 0);
    assert_eq!(fence(&world.server).await, shown(33, &world.a));
    assert_eq!(b.count().await, 0);
    assert_eq!(world.b.token(), Ok(token(34)), "it was in conflict, and had claimed nothing");
    assert_eq!(fence(&world.server).await, shown(34, &world.b));

    assert_lost(a.write(TEXT, "1").await, Some(stale(33, 34)));
    assert!(world.a.token().is_err());
    assert!(b.set(1).await);
    assert_eq!(world.value().await, 1);

    // A starts again from acquire. Its primary has still not seen 34.
    drop(a);
    assert_eq!(world.a.release().await.unwrap(), lock_client::Released::Released);
    let again = acquire(&world.primary).await;
    assert_eq!(again.token(), Ok(token(34)));
    let resource = under(&world.server, &again);
    let read = resource.count().await;
    assert_eq!((again.token(), read), (Ok(token(35)), 1));
    assert!(resource.set(read + 1).await);
    assert_eq!(kept(&world.server).await, Some(("2".to_owned(), 3)), "both updates are there");
}

#[tokio::test]
async fn clients_that_resend_rejected_writes_lose_an_update_where_ours_lose_none() {
    let world = TwoPrimaries::with_token(33).await;
    let (a, b) = (under(&world.server, &world.a), under(&world.server, &world.b));
    assert_eq!((race(&a, &b).await, world.value().await), ([false, true], 1));

    let world = TwoPrimaries::with_token(33).await;
    let (a, b) = (Resending::new(&world.server, &world.a), Resending::new(&world.server, &world.b));
    let accepted = race(&a, &b).await;
    assert_eq!((accepted, world.value().await), ([true, true], 1), "two updates made one");
}

#[tokio::test]
async fn holder_that_claims_second_continues_and_the_first_is_lost() {
    let world = TwoPrimaries::with_token(33).await;
    let (a, b) = (under(&world.server, &world.a), under(&world.server, &world.b));
    assert_eq!((b.count().await, a.count().await), (0, 0));
    assert_eq!((world.a.token(), world.b.token()), (Ok(token(34)), Ok(token(33))));
    assert_lost(b.write(TEXT, "1").await, Some(stale(33, 34)));
    assert!(a.set(1).await);
    assert_eq!(world.value().await, 1);
}

#[tokio::test]
async fn two_holders_below_the_fence_both_reissue_and_only_the_later_continues() {
    let world = TwoPrimaries::with_token(33).await;
    let other = Fence { token: token(40), holder: fence::Holder::random() };
    let storage = Storage::new(world.server.url()).unwrap();
    assert_eq!(storage.claim(&name("r"), &other).await.unwrap(), Answer::Accepted(1));

    let (a, b) = (under(&world.server, &world.a), under(&world.server, &world.b));
    // Neither has claimed yet, and each gets 41 from its own primary.
    let reissued = (world.a.reissue(token(40)).await, world.b.reissue(token(40)).await);
    assert_eq!((reissued.0.unwrap(), reissued.1.unwrap()), (token(41), token(41)));
    assert_eq!((a.count().await, b.count().await), (0, 0));
    assert_eq!((world.a.token(), world.b.token()), (Ok(token(41)), Ok(token(42))));
    assert!(!a.set(1).await);
    assert!(b.set(1).await);
    assert_eq!((fence(&world.server).await, world.value().await), (shown(42, &world.b), 1));
}

/// A reissue that one resource needs raises the lease's token. It must not carry a write of another
/// resource, which was read before, past a client that has been let in there since.
#[tokio::test]
async fn token_reissued_for_one_resource_does_not_push_a_write_of_another_through() {
    let world = TwoPrimaries::with_token(33).await;
    let storage = Storage::new(world.server.url()).unwrap();
    let other = name("other");
    let above = Fence { token: token(50), holder: fence::Holder::random() };
    assert_eq!(storage.claim(&other, &above).await.unwrap(), Answer::Accepted(0));

    let (a, b) = (under(&world.server, &world.a), under(&world.server, &world.b));
    let read_by_a = a.count().await;
    let read_by_b = b.count().await;
    assert!(b.set(read_by_b + 1).await, "with 34");

    storage.under(&world.a, &other).read().await.unwrap();
    let reissued = world.a.fence().unwrap();
    assert_eq!(reissued.token, token(51));
    assert_lost(a.write(TEXT, (read_by_a + 10).to_string()).await, Some(stale(33, 34)));
    assert_eq!(world.value().await, 1, "B's update is there");

    // The broken variant: it writes with the present token of the lease.
    let ten = (read_by_a + 10).to_string();
    let pushed = storage.write(&name("r"), &reissued, TEXT, ten).await.unwrap();
    assert_eq!((pushed, world.value().await), (Answer::Accepted(3), 10), "B's update is lost");
}
