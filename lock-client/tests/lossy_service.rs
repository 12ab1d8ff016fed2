//! A lock service, and a client whose connection has faults.

use std::time::Duration;

use lock_client::Locks;
use testbed::{
    Proxy, Redis,
    wait::{until, until_async},
};

use crate::{
    lock_service::{redis_before, until_listening},
    names::name,
};

const PATIENCE: Duration = Duration::from_secs(30);
/// What is in every request about the lock.
const LOCK: &str = "fenced:{r}:lock";

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is lost with its connection, and is not executed.
    LostRequest,
    /// It is executed, and its reply is lost with the connection.
    LostReply,
    /// The server hangs (SIGSTOP), until the client asks again or has given up, and then executes
    /// all that came meanwhile.
    Hang,
}

/// A Redis whose next token for `r` is 33, and two clients.
pub(crate) struct Service {
    pub(crate) redis: Redis,
    pub(crate) proxy: Proxy,
    /// With which nothing goes wrong, as long as Redis doesn't hang.
    pub(crate) near: Locks,
    /// Through the proxy.
    pub(crate) far: Locks,
}

/// A client that soon asks again while Redis hangs, and not yet on a busy machine.
fn locks(url: &str) -> Locks {
    let redis = lock_client::redis::Redis::open(url).unwrap();
    Locks::new(redis.answer_within(Duration::from_secs(1)))
}

impl Service {
    pub(crate) async fn start() -> Self {
        let redis = redis_before(33).await;
        let proxy = Proxy::start(redis.socket()).await.unwrap();
        let (near, far) = (locks(&redis.url()), locks(&proxy.url("redis")));
        // It connects with this, so that each step is one request.
        far.status(&name("r")).await.unwrap();
        Self { redis, proxy, near, far }
    }

    /// Does something, and something goes wrong with the first request about the lock.
    pub(crate) async fn during<T>(&mut self, fault: Fault, step: impl Future<Output = T>) -> T {
        let asked = self.proxy.requests(LOCK);
        match fault {
            Fault::LostRequest => self.proxy.lose_request(LOCK),
            Fault::LostReply => self.proxy.lose_reply_to(LOCK),
            Fault::Hang => {
                self.redis.process().pause().await.unwrap();
                let mut step = std::pin::pin!(step);
                let asks_again = until(PATIENCE, || Ok(self.proxy.requests(LOCK) > asked + 1));
                let ended = tokio::select! {
                    outcome = &mut step => Some(outcome),
                    asks_again = asks_again => asks_again.map(|()| None).unwrap(),
                };
                self.redis.process().resume().unwrap();
                return match ended {
                    Some(outcome) => outcome,
                    None => step.await,
                };
            }
        }
        let outcome = step.await;
        until(PATIENCE, || Ok(self.proxy.has_struck())).await.expect("nothing went wrong");
        outcome
    }

    /// Waits until this many waiters are in the queue.
    pub(crate) async fn queued(&self, count: u64) {
        let status = async || self.near.status(&name("r")).await;
        let queued = async || Ok(status().await.is_ok_and(|it| it.queued == count));
        until_async(PATIENCE, queued).await.unwrap();
    }

    /// Checks that the lock is free, that there are no waiters and no subscriptions, and that this
    /// is the last token.
    pub(crate) async fn assert_nothing_is_left(&self, last_token: u64) {
        until_listening(&self.redis, 0).await;
        let keys: Vec<String> = self.redis.command(&["KEYS", "*"]).await.unwrap();
        assert_eq!(keys, ["fenced:{r}:token"]);
        let status = self.near.status(&name("r")).await.unwrap();
        assert_eq!(status.last_token, Some(last_token));
    }
}
