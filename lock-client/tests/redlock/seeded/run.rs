//! One run: a few clients of one lock, for a short while, and the state of the nodes after it.

use std::time::Duration;

use anyhow::{Context, ensure};
use fence::ResourceName;
use futures_util::future::{join_all, try_join_all};
use lock_client::{Locks, Terms};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use redis::FromRedisValue;
use testbed::{Redis, RedlockNodes, wait::until_async};
use tokio::{select, time::sleep};

use super::{
    client::{Client, LONGEST_TTL},
    disturber::{Disturbance, counter},
    history::{History, Violation},
    storage::{Rule, Storage},
    witness::Witness,
};
use crate::lock_service::ttl;
use testbed::proxy::{Framing, Odds, Proxy, SeededFaults, rough_odds};

const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two acquires of a client that was rejected.
const PAUSE: Duration = Duration::from_millis(20);

/// The conditions of a run.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) odds: Odds,
    pub(super) disturbance: Disturbance,
    pub(super) rule: Rule,
}

impl Conditions {
    /// Conditions under which every promise must hold.
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let longest = Duration::from_millis(random.random_range(1..=40));
        // Each run leaves some faults out, so that the others become frequent.
        let weighed = |(odds, fault)| (odds * f64::from(random.random_range(0..=2)), fault);
        let odds = rough_odds(longest).into_iter().map(weighed).collect();
        let jumps = random.random_bool(0.7);
        let disturbance = if jumps { Disturbance::Jump } else { Disturbance::Uneven };
        Self { odds, disturbance, rule: Rule::Fenced }
    }

    /// Runs clients of a lock with a new name, as a seed decides. The nodes are shared with other
    /// runs. The proxies before them are new, and end with the runtime.
    ///
    /// # Errors
    /// If the lock is not free after that, or if the nodes keep anything of it but the counters.
    pub(super) async fn run(
        self,
        seed: u64,
        nodes: &RedlockNodes,
        name: &ResourceName,
    ) -> anyhow::Result<History> {
        let (witness, storage) = (Witness::new(), Storage::new(self.rule));
        let mut proxies = Vec::new();
        for (node, redis) in (0..).zip(nodes.nodes()) {
            let proxy = Proxy::start_framed(redis.socket(), Framing::Resp).await?;
            proxy.add(SeededFaults::new(seed, node, self.odds.clone()));
            proxies.push(proxy);
        }
        let mut random = StdRng::seed_from_u64(seed);
        let clients = (0..random.random_range(2..=4)).map(|_| {
            let urls = proxies.iter().map(|proxy| proxy.url("redis"));
            let locks = Locks::new(lock_client::redlock::Redlock::open(urls).unwrap());
            let random = StdRng::from_rng(&mut random);
            let may_be_rejected = self.disturbance == Disturbance::Maintained;
            let (storage, witness) = (&storage, &witness);
            Client { locks, name, storage, witness, random, may_be_rejected }.run()
        });
        let clients = join_all(clients.collect::<Vec<_>>());
        let all_locks = select! {
            all_locks = clients => all_locks,
            never = self.disturbance.disturb(nodes, name, random) => match never {},
        };
        join_all(all_locks.iter().map(Locks::wait_for_background)).await;
        try_join_all(proxies.iter().map(Proxy::all_executed)).await?;
        acquire_afterwards(nodes, name, &witness).await?;
        Ok(witness.into_history(storage.into_value()))
    }

    /// Returns the violations of what these conditions promise.
    pub(super) fn violations(&self, history: &History) -> Vec<Violation> {
        let mut violations = history.violations();
        if matches!(self.disturbance, Disturbance::Uneven | Disturbance::Maintained) {
            violations.extend(history.held_together());
        }
        violations
    }
}

/// Checks that the lock can be acquired soon, and that only the counters remain. Deletes the
/// counters.
async fn acquire_afterwards(
    nodes: &RedlockNodes,
    name: &ResourceName,
    witness: &Witness,
) -> anyhow::Result<()> {
    for node in nodes.nodes() {
        let left: i64 = answer(node, &["PTTL", &format!("fenced:{{{name}}}:lock")]).await?;
        // PTTL returns -2 for a missing key, and -1 for a key that never expires.
        let is_short = left == -2 || (0..=LONGEST_TTL.as_millis() as i64).contains(&left);
        ensure!(is_short, "a node keeps the lock for {left} ms");
    }
    let redlock = lock_client::redlock::Redlock::open(nodes.urls())?;
    let locks = Locks::new(redlock.answer_within(Duration::from_secs(5)));
    let asked = witness.now();
    let longest = ttl(LONGEST_TTL.as_millis() as u64);
    let terms = Terms::new(longest).wait(PATIENCE).without_renewal();
    let mut acquired = locks.acquire(name, terms).await;
    // While the members change, so many nodes may have no vote that a new client gives up before its wait
    // ends: by `Rejected`, or by `Unavailable` if an earlier request had no answer. Without the pause, the
    // clients would take the processor from the operator for whom they wait.
    while acquired.is_err() && witness.now() < asked + PATIENCE {
        sleep(PAUSE).await;
        acquired = locks.acquire(name, terms).await;
    }
    let lease = acquired.context("nobody can acquire the lock")?;
    witness.record_token(&lease, asked);
    lease.release().await?;
    locks.wait_for_background().await;
    for node in nodes.nodes() {
        // Locks whose release was lost expire with their ttl.
        until_async(LONGEST_TTL + PATIENCE, async || keeps_only_counter(node, name).await)
            .await
            .context("a node keeps more than the counter")?;
        answer::<u8>(node, &["DEL", &counter(name)]).await?;
    }
    Ok(())
}

/// Whether a node keeps nothing of a lock but its counter. A node that has restarted has lost that.
async fn keeps_only_counter(node: &Redis, name: &ResourceName) -> anyhow::Result<bool> {
    let keys: Vec<String> = answer(node, &["KEYS", &format!("fenced:{{{name}}}:*")]).await?;
    Ok(keys.iter().all(|key| *key == counter(name)))
}

/// A node's answer, also if it restarts just now.
async fn answer<T: FromRedisValue>(node: &Redis, command: &[&str]) -> anyhow::Result<T> {
    let answers = async || Ok(node.command::<String>(&["PING"]).await.is_ok());
    match node.command(command).await {
        Ok(answer) => Ok(answer),
        Err(_) => {
            until_async(PATIENCE, answers).await?;
            node.command(command).await
        }
    }
}
