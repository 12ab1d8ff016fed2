//! A Redis can have a wall clock of its own, which jumps.

use std::time::Duration;

use testbed::{NodeKind, Redis, RedlockNodes};

use crate::value;

const MINUTE: Duration = Duration::from_secs(60);
/// How long a busy machine may take between two commands.
const SLACK: Duration = Duration::from_secs(10);

/// Returns the time by the clock of a Redis.
async fn time(redis: &Redis) -> Duration {
    let (seconds, micros) = redis.command(&["TIME"]).await.unwrap();
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

async fn lasts_half_a_minute(redis: &Redis, key: &str) {
    redis.command::<()>(&["SET", key, "33", "PX", "30000"]).await.unwrap();
}

#[tokio::test]
async fn clock_of_one_node_jumps_and_its_keys_are_gone_at_once() {
    let kinds = [NodeKind::OwnClock, NodeKind::OwnClock, NodeKind::FORGETFUL];
    let mut nodes = RedlockNodes::start(&kinds).await.unwrap();
    let [jumping, still, plain] = nodes.nodes() else { panic!("there are three") };
    for node in [jumping, still, plain] {
        lasts_half_a_minute(node, "key").await;
        let ahead = time(node).await.abs_diff(time(plain).await);
        assert!(ahead < SLACK, "no clock has jumped, but one is {ahead:?} off");
    }

    jumping.jump(MINUTE).unwrap();
    assert_eq!(value(jumping, "key").await, None, "it has expired");
    assert!(time(jumping).await.abs_diff(time(plain).await + MINUTE) < SLACK);
    for node in [still, plain] {
        assert_eq!(value(node, "key").await.as_deref(), Some("33"), "half a minute of it is left");
        assert!(time(node).await.abs_diff(time(plain).await) < SLACK);
    }
    let error = plain.jump(MINUTE).unwrap_err();
    assert_eq!(error.to_string(), "this Redis has the machine's clock");

    lasts_half_a_minute(jumping, "key").await;
    assert_eq!(value(jumping, "key").await.as_deref(), Some("33"), "a new one lasts");
    jumping.jump(MINUTE).unwrap();
    assert_eq!(value(jumping, "key").await, None, "it can jump again");
    let jumped = &mut nodes.nodes_mut()[0];
    jumped.restart().await.unwrap();
    let [jumped, _, plain] = nodes.nodes() else { panic!("there are three") };
    assert!(
        time(jumped).await.abs_diff(time(plain).await + 2 * MINUTE) < SLACK,
        "a restart changes nothing"
    );
}

/// Sets keys for half a minute, reads each back at once, and returns how many had expired.
async fn count_expired(redis: &Redis, keys: usize) -> usize {
    let mut connection = testbed::redis::connect(redis.url()).await.unwrap();
    let mut expired = 0;
    for number in 0..keys {
        let mut set_and_get = redis::pipe();
        set_and_get.cmd("SET").arg(number).arg("x".repeat(1000)).arg("PX").arg(30_000).ignore();
        set_and_get.cmd("GET").arg(number);
        let (value,): (Option<String>,) = set_and_get.query_async(&mut connection).await.unwrap();
        expired += usize::from(value.is_none());
    }
    expired
}

#[tokio::test]
async fn redis_whose_clock_jumps_keeps_answering_under_load() {
    // Meanwhile it rewrites its log, in a process that it forks.
    let keeping = ["--appendonly", "yes"];
    let redis = Redis::start_with_own_clock(&keeping).await.unwrap();
    let jumps = async {
        for _ in 0..10 {
            redis.jump(MINUTE).unwrap();
            // It rejects while another rewrite runs.
            let _ = redis.command::<()>(&["BGREWRITEAOF"]).await;
        }
    };
    let (expired, more_expired, _, ()) =
        tokio::join!(count_expired(&redis, 2000), count_expired(&redis, 2000), time(&redis), jumps);
    // A jump may come between the two halves of a pipeline, which Redis reads at different times.
    assert!(expired + more_expired <= 2 * 10, "{expired} and {more_expired}");
    redis.jump(MINUTE).unwrap();
    assert_eq!(value(&redis, "1999").await, None);
    assert!(!redis.log().unwrap().contains("crashed"), "{}", redis.log().unwrap());
}
