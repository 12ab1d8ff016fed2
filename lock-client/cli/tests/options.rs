//! The options for a Redis that is far away, and for names that are many.

use std::time::Duration;

use testbed::{Proxy, Redis, proxy::Latency};

use crate::command::{NO_ANSWER, assert_failed, lock_client};

#[tokio::test]
async fn redis_that_is_far_away_needs_a_longer_answer_timeout() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    proxy.add(Latency(Duration::from_millis(600)));
    let url = proxy.url("redis");
    let run = ["run", "r", "--locks", &url, "--no-wait", "--", "true"];
    assert_failed(&lock_client(&run).await, 69, NO_ANSWER);
    let patient = [&["run", "--answer-timeout", "1500ms"], &run[1..]].concat();
    let output = lock_client(&patient).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lock: Option<String> = redis.command(&["GET", "fenced:{r}:lock"]).await.unwrap();
    assert_eq!(lock, None, "it was released");
}

#[tokio::test]
async fn counter_is_kept_for_the_time_of_the_option() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let run = ["run", "r", "--locks", &url, "--keep-counter-for", "1h", "--", "true"];
    let left = async || redis.command::<i64>(&["PTTL", "fenced:{r}:token"]).await.unwrap();
    assert_eq!(lock_client(&run).await.status.code(), Some(0));
    let hour = 3_600_000;
    assert!((hour - 60_000..=hour + 30_000).contains(&left().await), "{}", left().await);
    // Without the option, the retention stays.
    let acquire = lock_client(&["acquire", "r", "--locks", &url]).await;
    assert_eq!(acquire.status.code(), Some(0));
    assert!((hour - 60_000..=hour + 30_000).contains(&left().await), "{}", left().await);
    // By default, a counter is kept for ever.
    let run = ["run", "other", "--locks", &url, "--", "true"];
    assert_eq!(lock_client(&run).await.status.code(), Some(0));
    let left: i64 = redis.command(&["PTTL", "fenced:{other}:token"]).await.unwrap();
    assert_eq!(left, -1);
}

#[tokio::test]
async fn options_of_one_redis_are_wrong_usage_with_redlock() {
    let nodes = "redis://n1 redis://n2 redis://n3";
    let acquire = ["acquire", "r", "--locks", nodes, "--keep-counter-for", "1s", "--no-wait"];
    assert_failed(&lock_client(&acquire).await, 64, "not for Redlock");
}

#[tokio::test]
async fn manual_page_of_a_command_is_found_by_its_words() {
    let page = lock_client(&["man", "node", "change"]).await;
    assert_eq!(page.status.code(), Some(0), "{page:?}");
    assert_eq!(page.stdout, lock_client(&["man", "node-change"]).await.stdout);
    for words in [["node", "abacus"], ["run", "change"]] {
        assert_failed(&lock_client(&[&["man"], &words[..]].concat()).await, 64, "no command");
    }
}
