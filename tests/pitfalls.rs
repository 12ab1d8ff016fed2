//! Bugs of other people's locks, each of which was seen in one of them.

use std::time::Duration;

use lab::{
    process::{until, until_async},
    servers::{Redis, StorageServer},
};
use lock_client::{
    AcquireError, Lease, Locks, Lost, Released, RenewError, Terms, Ttl, backend,
    backend::{Backend, Ownership},
    storage::{FencedError, Storage},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    proxy::{Late, LossyProxy},
    world::{name, token},
};

const PATIENCE: Duration = Duration::from_secs(30);
const LOCK: &str = "fenced:{r}:lock";

fn locks(url: &str) -> Locks {
    Locks::new(backend::Redis::open(url).unwrap())
}

/// Terms of a single try, whose lease does nothing by itself.
fn tried(millis: u64) -> Terms {
    Terms::new(Ttl::new(Duration::from_millis(millis)).unwrap()).no_wait().without_renewal()
}

/// A Redis whose next token for `r` is 33, and which knows the script that acquires.
async fn redis() -> Redis {
    let redis = Redis::start().await.unwrap();
    locks(&redis.url()).acquire(&name("r"), tried(60_000)).await.unwrap().release().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    redis
}

async fn counter(redis: &Redis) -> u64 {
    redis.command(&["GET", "fenced:{r}:token"]).await.unwrap()
}

async fn expire(redis: &Redis) {
    assert_eq!(redis.command::<u64>(&["DEL", LOCK]).await.unwrap(), 1);
}

/// Redisson's RFencedLock increments it.
#[tokio::test]
async fn reentrant_acquire_does_not_move_the_token() {
    let redis = redis().await;
    let lease = locks(&redis.url()).acquire(&name("r"), tried(60_000)).await.unwrap();
    let again = lease.acquire(&name("r"), tried(60_000)).await.unwrap();
    let thrice = again.acquire(&name("r"), tried(60_000)).await.unwrap();
    for clone in [&lease, &again, &thrice] {
        assert_eq!((clone.token(), clone.holder()), (Ok(token(33)), lease.holder()));
    }
    assert_eq!(counter(&redis).await, 33);
    assert_eq!(thrice.release().await.unwrap(), Released::StillHeld);
    assert_eq!(again.release().await.unwrap(), Released::StillHeld);
    assert_eq!(lease.token(), Ok(token(33)));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// Redisson's `getToken()` reads the shared counter.
#[tokio::test]
async fn stale_holder_is_never_told_its_successors_token() {
    let redis = redis().await;
    let server = StorageServer::start(&[]).await.unwrap();
    let (storage, locks) = (Storage::new(server.url()).unwrap(), locks(&redis.url()));

    // It is past its deadline, and knows.
    let stale = locks.acquire(&name("r"), tried(100)).await.unwrap();
    let next = locks.acquire(&name("r"), tried(60_000).wait(PATIENCE)).await.unwrap();
    assert_eq!((next.token(), counter(&redis).await), (Ok(token(34)), 34));
    assert_eq!((stale.token(), stale.fence()), (Err(Lost), Err(Lost)));
    let resource = storage.under(&stale, &name("r"));
    let late = resource.write("text/plain", "late").await;
    assert!(matches!(late, Err(FencedError::Lost { refusal: None })), "{late:?}");
    assert_eq!(storage.read(&name("r")).await.unwrap(), None);

    // Redis's clock has jumped, and it doesn't know yet.
    expire(&redis).await;
    let last = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    assert_eq!((last.token(), counter(&redis).await), (Ok(token(35)), 35));
    assert_eq!(next.token(), Ok(token(34)), "its own");
    assert!(matches!(next.renew().await, Err(RenewError::Lost(_))));
    assert_eq!(next.token(), Err(Lost));
}

/// rslock's `acquire` loops for ever, once Redis is down.
#[tokio::test]
async fn waiter_of_a_redis_that_dies_ends_with_a_clear_error() {
    let unlimited = Terms::new(Ttl::from_secs(600).unwrap());
    let limited = unlimited.wait(Duration::from_secs(2));
    let mut waiters = JoinSet::new();
    for (terms, at_most) in [
        // It may have slept for 5 seconds before it asked, and then asks for 10.
        (unlimited, Duration::from_secs(25)),
        (unlimited.fair(), Duration::from_secs(25)),
        (limited, Duration::from_secs(10)),
        (limited.fair(), Duration::from_secs(10)),
    ] {
        waiters.spawn(async move {
            let mut redis = redis().await;
            let _other = locks(&redis.url()).acquire(&name("r"), tried(600_000)).await.unwrap();
            let waiting = locks(&redis.url());
            let waiter = tokio::spawn(async move { waiting.acquire(&name("r"), terms).await });
            subscribed(&redis).await;
            redis.process().kill().unwrap();
            let outcome = timeout(at_most, waiter).await.expect("it ends").unwrap();
            assert!(matches!(outcome, Err(AcquireError::Unavailable(_))), "{outcome:?}");
        });
    }
    waiters.join_all().await;
}

async fn subscribed(redis: &Redis) {
    let subscribed = async || {
        let channels: Vec<String> = redis.command(&["PUBSUB", "CHANNELS", "*"]).await?;
        Ok(channels.len() == 1)
    };
    until_async(PATIENCE, subscribed).await.unwrap();
}

/// Another crate tries once, whatever the time to wait.
#[tokio::test]
async fn acquire_with_a_wait_tries_until_the_lock_is_free() {
    for fair in [false, true] {
        for released in [false, true] {
            let redis = redis().await;
            let locks = locks(&redis.url());
            // Nobody publishes that a lock has run out.
            let ttl = if released { 600_000 } else { 1_000 };
            let first = locks.acquire(&name("r"), tried(ttl)).await.unwrap();
            let terms = tried(60_000).wait(PATIENCE);
            let terms = if fair { terms.fair() } else { terms };
            let waiting = locks.clone();
            let waiter = tokio::spawn(async move { waiting.acquire(&name("r"), terms).await });
            subscribed(&redis).await;
            if released {
                first.release().await.unwrap();
            } else {
                first.detach().unwrap();
            }
            let lease = timeout(Duration::from_secs(4), waiter).await.expect("it tries in time");
            assert_eq!(lease.unwrap().unwrap().token(), Ok(token(34)));
        }
    }
}

/// Most clients poll, and hand a lock over late.
#[tokio::test]
async fn waiter_does_not_poll() {
    let redis = redis().await;
    let proxy = LossyProxy::to(redis.socket()).await;
    let other = locks(&redis.url()).acquire(&name("r"), tried(600_000)).await.unwrap();
    let waiting = locks(&format!("redis://{}", proxy.address));
    let terms = tried(60_000).wait(PATIENCE);
    let waiter = tokio::spawn(async move { waiting.acquire(&name("r"), terms).await });
    subscribed(&redis).await;
    // A try before it subscribes, and one after.
    until(PATIENCE, || Ok(proxy.requests(LOCK) == 2)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(proxy.requests(LOCK), 2);
    other.release().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap().token(), Ok(token(34)));
    assert_eq!(proxy.requests(LOCK), 3);
}

/// A lease, and the request for it, which the network has kept a copy of.
async fn acquired_with_a_late_copy(redis: &Redis) -> (Lease, Late) {
    let proxy = LossyProxy::to(redis.socket()).await;
    let locks = locks(&format!("redis://{}", proxy.address));
    let held = proxy.hold(LOCK);
    let terms = tried(60_000);
    let r = name("r");
    let (lease, late) = tokio::join!(locks.acquire(&r, terms), async { held.caught().await.cut() });
    (lease.unwrap(), late)
}

/// The holder's name alone identifies no ownership: seals that compared only the name gave two
/// holders token 9.
#[tokio::test]
async fn late_grant_to_the_same_holder_is_another_ownership() {
    let redis = redis().await;
    let backend = backend::Redis::open(&redis.url()).unwrap();
    for (lease_asks, token_of_lease) in [(Asks::ToRenew, 33), (Asks::ToReissue, 35)] {
        let (lease, mut late) = acquired_with_a_late_copy(&redis).await;
        assert_eq!(lease.token(), Ok(token(token_of_lease)));
        expire(&redis).await;
        let next = token_of_lease + 1;
        assert_eq!(late.deliver().await, format!("*3\r\n:1\r\n:{next}\r\n:{next}\r\n"));

        // What compares the holder only would take it for its own.
        let held = backend.status(&name("r")).await.unwrap().held.unwrap();
        assert_eq!((&held.ownership.holder, held.token), (lease.holder(), token(next)));
        match lease_asks {
            Asks::ToRenew => assert!(matches!(lease.renew().await, Err(RenewError::Lost(_)))),
            Asks::ToReissue => {
                let reissued = lease.reissue(token(token_of_lease)).await;
                assert!(matches!(reissued, Err(RenewError::Lost(_))), "{reissued:?}");
            }
        }
        assert_eq!(lease.token(), Err(Lost));
        let unchanged = backend.status(&name("r")).await.unwrap();
        assert_eq!(unchanged.held.unwrap().ownership, held.ownership);
        assert_eq!(unchanged.last_token, Some(next));
        expire(&redis).await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Asks {
    ToRenew,
    ToReissue,
}

#[tokio::test]
async fn acquire_that_is_delivered_again_after_the_release_gives_nobody_the_same_token() {
    let redis = redis().await;
    let backend = backend::Redis::open(&redis.url()).unwrap();
    let locks = locks(&redis.url());
    let (lease, mut late) = acquired_with_a_late_copy(&redis).await;
    assert_eq!(lease.token(), Ok(token(33)));
    let first = Ownership { holder: lease.holder().clone(), grant: token(33) };
    assert_eq!(lease.release().await.unwrap(), Released::Released);

    // Somebody has the lock.
    let second = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    assert_eq!(second.token(), Ok(token(34)));
    let busy = late.deliver().await;
    assert!(busy.starts_with("*2\r\n:0\r\n"), "{busy}");
    assert_eq!(counter(&redis).await, 34);
    assert_eq!(second.release().await.unwrap(), Released::Released);

    // Nobody has it: it is taken for nobody, twice delivered or once, until its ttl is over.
    for _ in 0..2 {
        assert_eq!(late.deliver().await, "*3\r\n:1\r\n:35\r\n:35\r\n");
        let ttl = Ttl::from_secs(60).unwrap();
        assert_eq!(backend.renew(&name("r"), &first, ttl).await.unwrap(), None);
        assert_eq!(backend.reissue(&name("r"), &first, token(99)).await.unwrap(), None);
        assert_eq!(counter(&redis).await, 35);
    }
    expire(&redis).await;
    let third = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    assert_eq!(third.token(), Ok(token(36)));
}
