//! The metrics of the locks.

use std::time::Duration;

use lock_client::Terms;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use testbed::Redis;
use tokio::time::timeout;

use crate::{
    lock_service::{locks, tried, ttl, unrenewed},
    names::{name, token},
};

/// How often each counter was raised, and each histogram was given a value, since the last call.
fn counts(snapshotter: &Snapshotter) -> String {
    let metrics = snapshotter.snapshot().into_vec().into_iter();
    let counts = metrics.filter_map(|(key, _, _, value)| {
        let count = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => {
                assert!(values.iter().all(|value| (0.0..60.0).contains(&**value)), "{values:?}");
                values.len().try_into().unwrap()
            }
            DebugValue::Gauge(_) => panic!("there is no gauge"),
        };
        let labels = key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
        let labels = labels.collect::<Vec<_>>().join(",");
        (count > 0).then(|| format!("{}{{{labels}}} {count}", key.key().name()))
    });
    let mut counts: Vec<_> = counts.collect();
    counts.sort();
    counts.join("\n")
}

#[tokio::test]
async fn waits_holds_contention_renewals_losses_and_reissues_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // Everything runs on this thread.
    let _guard = metrics::set_default_local_recorder(&recorder);
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let locks = locks(&redis.url());

    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    lease.renew().await.unwrap();
    lease.reissue(token(34)).await.unwrap();
    lease.reissue(token(34)).await.unwrap();
    locks.acquire(&name("r"), tried(60_000)).await.unwrap_err();
    lease.release().await.unwrap();
    insta::assert_snapshot!(counts(&snapshotter), @"
    fenced_lock_contended_total{} 1
    fenced_lock_hold_seconds{} 1
    fenced_lock_reissues_total{} 1
    fenced_lock_renewals_total{outcome=renewed} 1
    fenced_lock_wait_seconds{outcome=acquired} 1
    fenced_lock_wait_seconds{outcome=contended} 1
    ");

    let lease = locks.acquire(&name("r"), Terms::new(ttl(3_000))).await.unwrap();
    let _: i64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    timeout(Duration::from_secs(20), lease.lost()).await.unwrap();
    assert!(lease.token().is_err());
    drop(lease);

    // A lease that is lost unnoticed is counted as lost when it is released.
    let lease = locks.acquire(&name("s"), unrenewed(100)).await.unwrap();
    timeout(Duration::from_secs(20), lease.lost()).await.unwrap();
    lease.release().await.unwrap();
    insta::assert_snapshot!(counts(&snapshotter), @"
    fenced_lock_hold_seconds{} 2
    fenced_lock_losses_total{reason=expired} 1
    fenced_lock_losses_total{reason=not-ours} 1
    fenced_lock_renewals_total{outcome=lost} 1
    fenced_lock_wait_seconds{outcome=acquired} 2
    ");
}
