//! Waiters that miss the message that should notify them.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Lease, Locks, Order, Ttl,
    backend::{Attempt, Backend, BackendFuture, Ownership, Status, Wakeups},
};
use testbed::Redis;
use tokio::{sync::Mutex, time::timeout};

use crate::{
    lock_service::{locks, redis_before, ttl, waiting},
    names::name,
    waiting::fair,
};

const SOON: Duration = Duration::from_secs(20);
/// Sooner than a waiter tries by itself. In the fair order, it does so after a second.
const AT_ONCE: Duration = Duration::from_millis(700);

/// A Redis that releases the lock just before a waiter subscribes. A waiter that tried before that,
/// and doesn't try again, is never notified.
#[derive(Debug)]
struct FreedBeforeSubscribed {
    redis: lock_client::redis::Redis,
    lease: Mutex<Option<Lease>>,
    subscribed: OnceLock<Instant>,
    /// The time from that release to the next try.
    tried_after: Arc<OnceLock<Duration>>,
}

impl Backend for FreedBeforeSubscribed {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            if let Some(subscribed) = self.subscribed.get() {
                self.tried_after.get_or_init(|| subscribed.elapsed());
            }
            self.redis.try_acquire(name, holder, ttl, order).await
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move { self.redis.renew(name, ownership, ttl).await })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move { self.redis.reissue(name, ownership, above).await })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        grant: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move { self.redis.release(name, holder, grant).await })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move {
            if let Some(lease) = self.lease.lock().await.take() {
                lease.release().await.unwrap();
            }
            let wakeups = self.redis.subscribe(name, holder, order).await;
            self.subscribed.get_or_init(Instant::now);
            wakeups
        })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(async move { self.redis.status(name).await })
    }

    fn address(&self) -> String {
        self.redis.address()
    }
}

#[tokio::test]
async fn lock_that_is_freed_before_a_waiter_subscribes_is_not_missed() {
    let redis = Redis::start().await.unwrap();
    for terms in [fair(), ttl(600_000).into()] {
        let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
        let tried_after = Arc::default();
        let waiting = Locks::new(FreedBeforeSubscribed {
            redis: lock_client::redis::Redis::open(&redis.url()).unwrap(),
            lease: Mutex::new(Some(lease)),
            subscribed: OnceLock::new(),
            tried_after: Arc::clone(&tried_after),
        });
        waiting.acquire(&name("r"), terms).await.unwrap().release().await.unwrap();
        let tried_after = *tried_after.get().expect("it tries after it has subscribed");
        assert!(tried_after < AT_ONCE, "it slept before it tried: {tried_after:?}");
    }
}

#[tokio::test]
async fn waiters_survive_a_lost_connection_and_a_missed_message() {
    for terms in [fair(), ttl(600_000).into()] {
        let redis = redis_before(33).await;
        let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
        let waiter = waiting(&redis, &locks(&redis.url()), terms).await;
        let _: i64 = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
        // As if the lock was released at that moment, and nobody was notified.
        let _: i64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
        let had = timeout(SOON, waiter).await.expect("it looks for itself").unwrap();
        had.unwrap().release().await.unwrap();
        drop(lease);
    }
}
