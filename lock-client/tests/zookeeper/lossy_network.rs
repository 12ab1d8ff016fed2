//! Many clients on a network that loses and delays by a seed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use lock_client::{Locks, Terms, backend::Backend};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use testbed::{
    Proxy, ZooKeeper,
    proxy::{Rule, Verdict},
    wait::until_async,
};

use super::service::{SOON, client, secs};
use crate::names::name;

const CLIENTS: usize = 6;
const ROUNDS: usize = 6;

/// Strikes one request of eight.
#[derive(Debug)]
struct Faults(StdRng);

impl Rule for Faults {
    fn on_request(&mut self, _: &[u8]) -> Verdict {
        let delay = Duration::from_millis(self.0.random_range(0..200));
        match self.0.random_range(0..32) {
            0 => Verdict::Drop,
            1 => Verdict::DropReply,
            2 => Verdict::Delay(delay),
            3 => Verdict::DelayReply(delay),
            _ => Verdict::Pass,
        }
    }
}

/// A ttl of a minute: a node that an attempt leaves behind would block all others for so long.
#[tokio::test]
async fn clients_hold_one_at_a_time_and_leave_nothing_behind() {
    for seed in 0..2 {
        let zookeeper = ZooKeeper::start().await.unwrap();
        let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
        proxy.add(Faults(StdRng::seed_from_u64(seed)));
        let (taken, tokens) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let works = (0..CLIENTS).map(|number| {
            let (url, taken, tokens) = (proxy.url("zookeeper"), taken.clone(), tokens.clone());
            tokio::spawn(async move {
                let backend = client(&url).answer_within(Duration::from_millis(500));
                let locks = Locks::new(backend);
                let terms = Terms::new(secs(60));
                let terms = if number % 2 == 0 { terms.fair() } else { terms };
                for _ in 0..ROUNDS {
                    let lease = locks.acquire(&name("r"), terms).await.unwrap();
                    assert!(!taken.swap(true, Ordering::SeqCst), "two hold the lock");
                    let token = lease.token().unwrap();
                    tokens.lock().unwrap().push(token);
                    if let Ok(reissued) = lease.reissue(token).await {
                        tokens.lock().unwrap().push(reissued);
                    }
                    taken.store(false, Ordering::SeqCst);
                    drop(lease);
                    locks.wait_for_background().await;
                }
            })
        });
        for work in join_all(works).await {
            work.unwrap();
        }
        let tokens = tokens.lock().unwrap();
        assert!(tokens.len() >= CLIENTS * ROUNDS);
        assert!(tokens.is_sorted_by(|before, after| before < after), "seed {seed}: {tokens:?}");
        let direct = client(&zookeeper.url());
        let is_free = async || Ok(direct.status(&name("r")).await?.held.is_none());
        until_async(SOON, is_free).await.unwrap();
        let left = zookeeper.ephemeral_nodes().await.unwrap();
        assert!(!left.contains("/fenced"), "seed {seed}: {left}");
    }
}
