//! Waiters that miss the message which would have woken them.

use std::time::Duration;

use async_trait::async_trait;
use fence::{Holder, ResourceName, Token};
use lab::servers::Redis;
use lock_client::{
    Lease, Locks, Order, Ttl,
    backend::{self, Attempt, Backend, BackendError, Ownership, Status, Wakeups},
};
use tokio::{
    sync::{Mutex, mpsc},
    time::timeout,
};

use crate::{
    waiting::{fair, until_listening, waiter},
    world::{locks, name, ttl},
};

const SOON: Duration = Duration::from_secs(20);
/// Sooner than a waiter looks for itself.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A Redis on which the lock is freed just before a waiter listens: whoever has tried before that, and
/// doesn't try again, is never woken.
#[derive(Debug)]
struct FreedBeforeSubscribed {
    redis: backend::Redis,
    lease: Mutex<Option<Lease>>,
}

#[async_trait]
impl Backend for FreedBeforeSubscribed {
    async fn try_acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError> {
        self.redis.try_acquire(name, holder, ttl, order).await
    }

    async fn renew(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        self.redis.renew(name, ownership, ttl).await
    }

    async fn reissue(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError> {
        self.redis.reissue(name, ownership, above).await
    }

    async fn release(&self, name: &ResourceName, holder: &Holder) -> Result<bool, BackendError> {
        self.redis.release(name, holder).await
    }

    async fn subscribe(
        &self,
        name: &ResourceName,
        holder: &Holder,
        order: Order,
    ) -> Result<Wakeups, BackendError> {
        if let Some(lease) = self.lease.lock().await.take() {
            lease.release().await.unwrap();
        }
        self.redis.subscribe(name, holder, order).await
    }

    async fn status(&self, name: &ResourceName) -> Result<Status, BackendError> {
        self.redis.status(name).await
    }
}

#[tokio::test]
async fn lock_that_is_freed_before_a_waiter_listens_is_not_missed() {
    let redis = Redis::start().await.unwrap();
    for terms in [fair(), ttl(600_000).into()] {
        let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
        let waiting = Locks::new(FreedBeforeSubscribed {
            redis: backend::Redis::open(&redis.url()).unwrap(),
            lease: Mutex::new(Some(lease)),
        });
        let had = timeout(AT_ONCE, waiting.acquire(&name("r"), terms)).await;
        had.expect("it tries after it has subscribed").unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn waiters_survive_a_lost_connection_and_a_missed_message() {
    for terms in [fair(), ttl(600_000).into()] {
        let redis = Redis::start().await.unwrap();
        let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
        let (told, mut heard) = mpsc::unbounded_channel();
        waiter(&locks(&redis.url()), 1, terms, told);
        until_listening(&redis, 1).await;
        let _: i64 = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
        // As if released at that moment, and nobody had heard.
        let _: i64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
        timeout(SOON, heard.recv()).await.expect("it looks for itself").unwrap();
        drop(lease);
    }
}
