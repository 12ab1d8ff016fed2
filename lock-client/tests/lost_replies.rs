//! What goes wrong on the way, at every step: a request that is lost, a reply that is lost, and a
//! server that hangs for a while. Nothing that may have happened is told as refused, and nothing is
//! left behind.

mod holding;
mod waiting;

use std::time::Duration;

use lock_client::{AcquireError, Locks, Released, RenewError, Terms, Ttl};
use testbed::{
    Redis,
    wait::{until, until_async},
};

use crate::{
    lock_service::{
        lasting, locks, redis_before, scripts_run, until_listening, until_waiting, waiting,
    },
    names::{name, token},
};
use testbed::lossy_proxy::LossyProxy;

const PATIENCE: Duration = Duration::from_secs(30);
/// What is in every request about the lock.
const LOCK: &str = "fenced:{r}:lock";

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is lost with its connection, and is not executed.
    LostRequest,
    /// It is executed, and its reply is lost with the connection.
    LostReply,
    /// The server hangs (SIGSTOP), until the client asks again or has given up, and then executes
    /// all that came meanwhile.
    Hang,
}

/// Runs each test with each fault.
macro_rules! whatever_goes_wrong {
    ($($step:ident,)*) => {
        mod lost_request {
            $(#[tokio::test]
            async fn $step() {
                super::$step($crate::lost_replies::Fault::LostRequest).await;
            })*
        }
        mod lost_reply {
            $(#[tokio::test]
            async fn $step() {
                super::$step($crate::lost_replies::Fault::LostReply).await;
            })*
        }
        mod hang {
            $(#[tokio::test]
            async fn $step() {
                super::$step($crate::lost_replies::Fault::Hang).await;
            })*
        }
    };
}
use whatever_goes_wrong;

/// A Redis whose next token for `r` is 33, and two clients.
struct Service {
    redis: Redis,
    proxy: LossyProxy,
    /// With which nothing goes wrong, as long as Redis doesn't hang.
    near: Locks,
    /// Through the proxy.
    far: Locks,
}

impl Service {
    async fn start() -> Self {
        let redis = redis_before(33).await;
        let proxy = LossyProxy::to(redis.socket()).await;
        let (near, far) = (locks(&redis.url()), locks(&format!("redis://{}", proxy.address)));
        // It connects with this, so that each step is one request.
        far.status(&name("r")).await.unwrap();
        Self { redis, proxy, near, far }
    }

    /// Does something, and something goes wrong with the first request about the lock.
    async fn during<T>(&mut self, fault: Fault, step: impl Future<Output = T>) -> T {
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
        assert!(self.proxy.has_lost_it(), "nothing went wrong");
        outcome
    }

    /// Waits until so many stand in the queue.
    async fn queued(&self, count: u64) {
        let queued = async || Ok(self.near.status(&name("r")).await?.queued == count);
        until_async(PATIENCE, queued).await.unwrap();
    }

    /// Checks that the lock is free, that nobody stands in the queue, that nobody listens, and that
    /// the last token is this one.
    async fn assert_nothing_is_left(&self, last_token: u64) {
        until_listening(&self.redis, 0).await;
        let keys: Vec<String> = self.redis.command(&["KEYS", "*"]).await.unwrap();
        assert_eq!(keys, ["fenced:{r}:token"]);
        let status = self.near.status(&name("r")).await.unwrap();
        assert_eq!(status.last_token, Some(last_token));
    }
}
