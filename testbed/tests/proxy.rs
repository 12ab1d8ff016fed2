//! The proxy strikes the messages that it has a rule for, and lets all others pass.

mod cutting;
mod holding;
mod losing;
mod seeded;

use std::time::Duration;

use redis::{Client, RedisResult, aio::MultiplexedConnection};
use testbed::{
    Proxy, Redis,
    proxy::{Framing, Rule, Verdict},
};

use crate::value;

const PATIENCE: Duration = Duration::from_secs(20);

async fn start() -> (Redis, Proxy) {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    (redis, proxy)
}

async fn connect(proxy: &Proxy) -> RedisResult<MultiplexedConnection> {
    testbed::redis::connect(proxy.url("redis")).await
}

async fn increment(connection: &mut MultiplexedConnection, key: &str) -> RedisResult<u64> {
    redis::cmd("INCR").arg(key).query_async(connection).await
}

/// Adds one over a connection of its own.
async fn increment_anew(proxy: &Proxy, key: &str) -> RedisResult<u64> {
    increment(&mut connect(proxy).await?, key).await
}

#[tokio::test]
async fn without_rules_everything_passes_in_both_framings() {
    for framing in [Framing::Chunks, Framing::Resp] {
        let redis = Redis::start().await.unwrap();
        let proxy = Proxy::start_framed(redis.socket(), framing).await.unwrap();
        let mut connection = connect(&proxy).await.unwrap();
        // Far more than is read at once.
        let large = "34".repeat(1 << 20);
        redis::cmd("SET").arg("key").arg(&large).exec_async(&mut connection).await.unwrap();
        let got: String = redis::cmd("GET").arg("key").query_async(&mut connection).await.unwrap();
        assert!(got == large, "{framing:?}");
        for expected in 1..=100 {
            assert_eq!(increment(&mut connection, "count").await.unwrap(), expected);
        }
        assert_eq!(proxy.requests("count"), 100, "{framing:?}");
        assert_eq!(proxy.requests("no such text"), 0);
    }
}

/// Delays replies about `slow`, and loses requests about `lost`.
#[derive(Debug)]
struct OwnRule;

impl Rule for OwnRule {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        if String::from_utf8_lossy(request).contains("lost") {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }

    fn on_reply(&mut self, request: &[u8], reply: &[u8]) -> Verdict {
        assert!(!reply.is_empty());
        let is_slow = String::from_utf8_lossy(request).contains("slow");
        if is_slow { Verdict::Delay(Duration::from_millis(300)) } else { Verdict::Pass }
    }
}

#[tokio::test]
async fn rule_of_a_test_decides_on_requests_and_on_replies_with_their_requests() {
    for framing in [Framing::Chunks, Framing::Resp] {
        let redis = Redis::start().await.unwrap();
        let proxy = Proxy::start_framed(redis.socket(), framing).await.unwrap();
        proxy.add(OwnRule);
        let mut connection = connect(&proxy).await.unwrap();
        let begun = tokio::time::Instant::now();
        assert_eq!(increment(&mut connection, "other").await.unwrap(), 1);
        let other = begun.elapsed();
        assert_eq!(increment(&mut connection, "slow").await.unwrap(), 1);
        let slow = begun.elapsed() - other;
        assert!(slow > Duration::from_millis(300), "{slow:?}, the other {other:?}");
        assert!(increment(&mut connection, "lost").await.unwrap_err().is_connection_dropped());
        assert_eq!(value(&redis, "lost").await, None);
    }
}
