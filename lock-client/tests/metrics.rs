//! What the locks tell of themselves.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_client::Terms;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use testbed::Redis;
use tokio::time::timeout;

use crate::{
    lock_service::{locks, tried, ttl, unrenewed},
    names::{name, token},
};

/// How often each counter was raised and each histogram was given a value.
#[derive(Default)]
struct Counted(Mutex<BTreeMap<String, Arc<Count>>>);

#[derive(Default)]
struct Count(AtomicU64);

impl Counted {
    fn of(&self, key: &Key) -> Arc<Count> {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let key = format!("{}{{{}}}", key.name(), labels.join(","));
        self.0.lock().unwrap().entry(key).or_default().clone()
    }

    /// All that is not zero.
    fn take(&self) -> Vec<String> {
        let counts = std::mem::take(&mut *self.0.lock().unwrap());
        let told = |(key, count): (String, Arc<Count>)| {
            format!("{key} {}", count.0.load(Ordering::SeqCst))
        };
        counts.into_iter().map(told).collect()
    }
}

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::SeqCst);
    }

    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }
}

impl HistogramFn for Count {
    fn record(&self, value: f64) {
        assert!((0.0..60.0).contains(&value), "{value} seconds");
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("{key} is no metric of ours")
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.of(key))
    }
}

#[tokio::test]
async fn waits_holds_contention_renewals_losses_and_reissues_are_counted() {
    let counted = Counted::default();
    // Everything runs on this thread.
    let _guard = metrics::set_default_local_recorder(&counted);
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let locks = locks(&redis.url());

    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    lease.renew().await.unwrap();
    lease.reissue(token(34)).await.unwrap();
    lease.reissue(token(34)).await.unwrap();
    locks.acquire(&name("r"), tried(60_000)).await.unwrap_err();
    lease.release().await.unwrap();
    insta::assert_snapshot!(counted.take().join("\n"), @"
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
    insta::assert_snapshot!(counted.take().join("\n"), @"
    fenced_lock_hold_seconds{} 2
    fenced_lock_losses_total{reason=expired} 1
    fenced_lock_losses_total{reason=not-ours} 1
    fenced_lock_renewals_total{outcome=lost} 1
    fenced_lock_wait_seconds{outcome=acquired} 2
    ");
}
