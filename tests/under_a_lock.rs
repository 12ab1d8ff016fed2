//! Working under a lock: within its body, with re-entry, and under several at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fence::{Fence, Holder};
use lock_client::{
    AcquireError, Lease, Released, Terms, WithError,
    storage::{Answer, FencedError, Storage},
};
use testbed::{Redis, StorageServer};
use tokio::time::timeout;

use crate::programs::storage_server;
use crate::{
    lock_service::{locks, tried, ttl, until_free},
    names::{name, token},
};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn counted_reentry_has_the_same_token() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let locks = locks(&redis.url());
    let result: Result<_, WithError<AcquireError>> = locks
        .with(&name("r"), ttl(60_000), |lease| async move {
            let again = lease.acquire(&name("r"), ttl(60_000)).await?;
            assert_eq!(again.token(), lease.token());
            assert_eq!(again.release().await.unwrap(), Released::StillHeld);
            let other = lease.acquire(&name("other"), ttl(60_000)).await?;
            assert_ne!(other.token(), lease.token());
            Ok(lease.token().unwrap())
        })
        .await;
    assert_eq!(result.unwrap(), token(33));
    let counter: u64 = redis.command(&["GET", "fenced:{r}:token"]).await.unwrap();
    assert_eq!(counter, 33, "re-entry has issued nothing");
    until_free(&redis).await;

    let lease = locks.acquire(&name("r"), ttl(60_000)).await.unwrap();
    let _: i64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    assert!(lease.renew().await.is_err());
    let again = lease.acquire(&name("r"), ttl(60_000)).await;
    assert!(matches!(again, Err(AcquireError::Lost(_))), "{again:?}");
}

/// As in the README of the crate.
#[tokio::test]
async fn resource_that_is_used_under_a_lease_does_not_keep_the_lock() {
    let (mut redis, server) = (
        Redis::start().await.unwrap(),
        StorageServer::start(&storage_server(), &[]).await.unwrap(),
    );
    let (locks, storage) = (locks(&redis.url()), Storage::new(server.url()).unwrap());
    let lease = locks.acquire(&name("r"), ttl(60_000)).await.unwrap();
    let value = storage.under(&lease, &name("r"));
    assert_eq!(value.read().await.unwrap(), None);
    value.write("text/plain", "paid").await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    let late = value.write("text/plain", "paid again").await;
    assert!(matches!(late, Err(FencedError::Lost { rejection: None, .. })), "{late:?}");

    // Nor does it wait for Redis to say that the lock is released.
    let lease = locks.acquire(&name("r"), ttl(60_000)).await.unwrap();
    let (value, lost) = (storage.under(&lease, &name("r")), lease.lost());
    value.read().await.unwrap();
    redis.process().pause().await.unwrap();
    drop(lease);
    timeout(SOON, lost).await.expect("it is over at once");
    let late = value.write("text/plain", "paid again").await;
    assert!(matches!(late, Err(FencedError::Lost { rejection: None, .. })), "{late:?}");
    redis.process().resume().unwrap();
}

/// Each storage has its own fences: a claim in one is no claim in another.
#[tokio::test]
async fn claim_in_one_storage_is_none_in_another() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let locks = locks(&redis.url());
    let (one, other) = (
        StorageServer::start(&storage_server(), &[]).await.unwrap(),
        StorageServer::start(&storage_server(), &[]).await.unwrap(),
    );
    let [one, other] = [&one, &other].map(|server| Storage::new(server.url()).unwrap());
    let seen = Fence { token: token(50), holder: Holder::random() };
    let claimed = other.claim(&name("r"), &seen).await.unwrap();
    assert!(matches!(claimed, Answer::Accepted(_)), "{claimed:?}");
    let lease = locks.acquire(&name("r"), ttl(60_000)).await.unwrap();
    one.under(&lease, &name("r")).read().await.unwrap();
    other.under(&lease, &name("r")).read().await.expect("it goes on with a token above 50");
    assert_eq!(lease.token(), Ok(token(51)));
    lease.release().await.unwrap();
}

#[tokio::test]
async fn with_releases_in_any_case_and_never_hides_the_bodys_own_error() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let done = locks.with(&name("r"), ttl(60_000), |_| async { Ok::<_, &str>(7) }).await;
    assert_eq!(done.unwrap(), 7);
    until_free(&redis).await;

    let failed = locks.with(&name("r"), ttl(60_000), |_| async { Err::<(), _>("mine") }).await;
    assert!(matches!(failed, Err(WithError::Body("mine"))));
    until_free(&redis).await;

    // Even if the lock is not there to be released.
    let failed = locks
        .with(&name("r"), ttl(60_000), |_| async {
            let _: i64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
            Err::<(), _>("mine")
        })
        .await;
    assert!(matches!(failed, Err(WithError::Body("mine"))));

    let panicking = locks.clone();
    let panicked = tokio::spawn(async move {
        let body = |_| async { panic!("on purpose") };
        panicking.with::<(), (), _>(&name("r"), ttl(60_000), body).await
    });
    assert!(panicked.await.unwrap_err().is_panic());
    until_free(&redis).await;
}

#[tokio::test]
async fn with_cancels_the_body_when_the_lease_is_lost() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = Dropped(dropped.clone());
    let redis = &redis;
    let body = |_| async move {
        let _guard = guard;
        let _: i64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
        std::future::pending::<Result<(), ()>>().await
    };
    let lost = timeout(SOON, locks.with(&name("r"), ttl(3_000), body)).await.unwrap();
    assert!(matches!(lost, Err(WithError::Lost(_))));
    assert!(dropped.load(Ordering::SeqCst), "the body has ended by then");
}

#[tokio::test]
async fn several_names_are_acquired_all_or_none() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let names = ["c", "a", "b", "a"].map(name);
    let leases = locks.acquire_all(&names, tried(60_000)).await.unwrap();
    let had: Vec<_> = leases.iter().map(Lease::name).collect();
    assert_eq!(had, names.iter().collect::<Vec<_>>());
    assert_eq!(leases[1].token(), leases[3].token());
    drop(leases);
    until_free(&redis).await;

    let held = locks.acquire(&name("b"), tried(60_000)).await.unwrap();
    let wait = Duration::from_millis(100);
    for terms in [tried(60_000), Terms::new(ttl(60_000)).wait(wait), tried(60_000).fair()] {
        let busy = locks.acquire_all(&names, terms).await;
        assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
        let keys: Vec<String> = redis.command(&["KEYS", "*:lock"]).await.unwrap();
        assert_eq!(keys, ["fenced:{b}:lock"]);
    }
    drop(held);
}

#[tokio::test]
async fn names_in_any_order_never_wait_for_each_other() {
    let redis = Redis::start().await.unwrap();
    let tasks: Vec<_> = [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]]
        .map(|names| {
            let locks = locks(&redis.url());
            tokio::spawn(async move {
                for _ in 0..20 {
                    let leases = locks.acquire_all(&names.map(name), ttl(60_000)).await.unwrap();
                    tokio::task::yield_now().await;
                    drop(leases);
                }
            })
        })
        .into();
    for task in tasks {
        timeout(Duration::from_secs(60), task).await.expect("no deadlock").unwrap();
    }
}
