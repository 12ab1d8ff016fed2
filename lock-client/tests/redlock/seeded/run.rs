//! One run: some clients of one lock, for a short while, and what is left behind them.

use std::time::Duration;

use anyhow::{Context, ensure};
use fence::ResourceName;
use futures_util::future::{join_all, try_join_all};
use lock_client::{Locks, Terms};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use testbed::{Redis, RedlockNodes, wait::until_async};
use tokio::select;

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

/// What a run is like.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) odds: Odds,
    pub(super) disturbance: Disturbance,
    pub(super) rule: Rule,
}

impl Conditions {
    /// The conditions in which all has to go well.
    pub(super) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let longest = Duration::from_millis(random.random_range(1..=40));
        // What is rare next to everything else is frequent by itself.
        let weighed = |(odds, fault)| (odds * f64::from(random.random_range(0..=2)), fault);
        let odds = rough_odds(longest).into_iter().map(weighed).collect();
        let jumps = random.random_bool(0.7);
        let disturbance = if jumps { Disturbance::Jump } else { Disturbance::Uneven };
        Self { odds, disturbance, rule: Rule::Fenced }
    }

    /// Has clients play as a seed decides, under a lock of a name that is new. The nodes are the same
    /// as before; what stands before them is new, and ends with the runtime.
    ///
    /// # Errors
    /// If the lock isn't free after that, or something is left of it on the nodes.
    pub(super) async fn play(
        self,
        seed: u64,
        nodes: &RedlockNodes,
        name: &ResourceName,
    ) -> anyhow::Result<History> {
        let (witness, storage) = (Witness::new(), Storage::with(self.rule));
        let mut proxies = Vec::new();
        for (node, redis) in (0..).zip(nodes.nodes()) {
            let proxy = Proxy::start_framed(redis.socket(), Framing::Resp).await?;
            proxy.add(SeededFaults::new(seed, node, self.odds.clone()));
            proxies.push(proxy);
        }
        let mut random = StdRng::seed_from_u64(seed);
        let clients = (0..random.random_range(2..=4)).map(|_| {
            let urls = proxies.iter().map(|proxy| proxy.url("redis"));
            let locks = Locks::from(lock_client::redlock::Redlock::open(urls).unwrap());
            let random = StdRng::from_rng(&mut random);
            Client { locks, name, storage: &storage, witness: &witness, random }.play()
        });
        let clients = join_all(clients.collect::<Vec<_>>());
        let all_locks = select! {
            all_locks = clients => all_locks,
            never = self.disturbance.disturb(nodes, name, random) => match never {},
        };
        join_all(all_locks.iter().map(Locks::settled)).await;
        try_join_all(proxies.iter().map(Proxy::all_executed)).await?;
        acquire_afterwards(nodes, name, &witness).await?;
        Ok(witness.into_history(storage.into_value()))
    }

    /// What of that must not be.
    pub(super) fn violations(&self, history: &History) -> Vec<Violation> {
        let mut violations = history.violations();
        if self.disturbance == Disturbance::Uneven {
            violations.extend(history.held_at_once());
        }
        violations
    }
}

/// Sees that nobody is shut out for long, and that nothing is left but the counters, which it deletes.
async fn acquire_afterwards(
    nodes: &RedlockNodes,
    name: &ResourceName,
    witness: &Witness,
) -> anyhow::Result<()> {
    for node in nodes.nodes() {
        let left: i64 = node.command(&["PTTL", &format!("fenced:{{{name}}}:lock")]).await?;
        // That it is gone is told by -2, and that it has no end by -1.
        let is_short = left == -2 || (0..=LONGEST_TTL.as_millis() as i64).contains(&left);
        ensure!(is_short, "a node keeps the lock for {left} ms");
    }
    let locks = Locks::from(lock_client::redlock::Redlock::open(nodes.urls())?);
    let asked = witness.now();
    let terms = Terms::new(ttl(60_000)).wait(PATIENCE).without_renewal();
    let lease = locks.acquire(name, terms).await.context("everybody is shut out")?;
    witness.told(&lease, asked);
    lease.release().await?;
    locks.settled().await;
    for node in nodes.nodes() {
        // Of rivals who could not be told, the locks go with their ttl.
        until_async(LONGEST_TTL + PATIENCE, async || keeps_only_counter(node, name).await)
            .await
            .context("something is left on a node")?;
        node.command::<u8>(&["DEL", &counter(name)]).await?;
    }
    Ok(())
}

/// Whether a node knows nothing of a lock but its counter.
async fn keeps_only_counter(node: &Redis, name: &ResourceName) -> anyhow::Result<bool> {
    let keys: Vec<String> = node.command(&["KEYS", &format!("fenced:{{{name}}}:*")]).await?;
    Ok(keys == [counter(name)])
}
