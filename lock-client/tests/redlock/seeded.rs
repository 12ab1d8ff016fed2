//! The code checked against the model: many short runs of real clients against real nodes, to which
//! requests are late, lost and executed again, as a seed decides. What the clients saw is checked for
//! what the model (`lock-client/redlock-model`) promises.
//!
//! A violation tells its seed, and how to run it again. A seed decides what goes wrong and what the
//! clients do, but not how fast that is: so it is run many times then.
//!
//! ```sh
//! FENCED_SEED=33 cargo test -p lock-client --all-features --test main redlock::seeded    # runs one seed again and again
//! FENCED_RUNS=1000 cargo test -p lock-client --all-features --test main redlock::seeded  # runs so many seeds
//! ```
//!
//! The storage is one in memory, with the rule of the crate `fence`, which all storages have.

mod client;
mod disturber;
mod handmade;
mod history;
mod run;
mod storage;
mod witness;

use std::{env, panic::AssertUnwindSafe, sync::Mutex, thread, time::Duration};

use anyhow::bail;
use fence::ResourceName;
use futures_util::FutureExt;
use testbed::{NodeKind, RedlockNodes};
use tokio::{runtime, time::timeout};

use self::{
    disturber::Disturbance,
    history::{History, Violation},
    run::Conditions,
    storage::Rule,
};
use crate::names::name;
use crate::start_cluster::start_cluster;
use testbed::proxy::Odds;

/// How many runs there are if not told, and how many of one seed.
const RUNS: usize = 100;
/// How many are under way at once. They mostly wait.
const AT_ONCE: usize = 16;
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn what_the_model_promises_holds_for_real_clients() {
    let (three, five) = tokio::join!(start(3), start(5));
    let nodes_of = |seed: u64| if seed.is_multiple_of(4) { &five } else { &three };
    let mut failed = Vec::new();
    for (seed, result) in play_all(seeds(), nodes_of, Conditions::of) {
        let failure = match result {
            Ok(history) => match Conditions::of(seed).violations(&history) {
                none if none.is_empty() => continue,
                violations => format!("{violations:#?}\nin {history:?}"),
            },
            Err(error) => format!("{error:#}"),
        };
        eprintln!(
            "{failure}\nwith the seed {seed}. To run it again:\n    \
             FENCED_SEED={seed} cargo test -p lock-client --all-features --test main redlock::seeded\n"
        );
        failed.push(seed);
    }
    assert!(failed.is_empty(), "{} runs went wrong, as told above: {failed:?}", failed.len());
}

#[tokio::test]
async fn counters_that_are_lost_are_found() {
    let found = found(Disturbance::CountersLost, Rule::Fenced, History::violations).await;
    let are_tokens =
        |found: &Violation| matches!(found, Violation::OutOfOrder(..) | Violation::TokenOfTwo(..));
    assert!(found.iter().all(are_tokens), "the rule and the reissue make up for that: {found:?}");
}

#[tokio::test]
async fn locks_that_are_over_early_on_all_nodes_are_found() {
    found(Disturbance::AllJump, Rule::Fenced, History::held_at_once).await;
}

#[tokio::test]
async fn storage_that_does_not_fence_is_found() {
    let found = found(Disturbance::Uneven, Rule::Unfenced, History::violations).await;
    let is_lost = |found: &Violation| matches!(found, Violation::Lost(_));
    assert!(found.iter().all(is_lost), "the lock is as good as before: {found:?}");
}

/// Plays seeds in which nothing goes wrong on the way, but this, until something is found. How soon it
/// is depends on how fast everybody is.
async fn found(
    disturbance: Disturbance,
    rule: Rule,
    violations: fn(&History) -> Vec<Violation>,
) -> Vec<Violation> {
    let nodes = start(3).await;
    let conditions = Conditions { odds: Odds::new(), disturbance, rule };
    for first in (0..1000).step_by(AT_ONCE) {
        let seeds = (first..).take(AT_ONCE).collect();
        let results = play_all(seeds, |_| &nodes, |_| conditions.clone()).into_iter();
        let found: Vec<_> = results.flat_map(|(_, result)| violations(&result.unwrap())).collect();
        if !found.is_empty() {
            return found;
        }
    }
    panic!("1000 runs, and nothing was found");
}

async fn start(number: usize) -> RedlockNodes {
    let nodes = RedlockNodes::start(&vec![NodeKind::FORGETFUL; number]).await.unwrap();
    start_cluster(&nodes, Duration::from_secs(60)).await;
    nodes
}

/// The seeds that are to be run.
fn seeds() -> Vec<u64> {
    let told = |variable| env::var(variable).ok().map(|told| told.parse().expect(variable));
    match told("FENCED_SEED") {
        Some(seed) => vec![seed; RUNS],
        None => {
            let runs = told("FENCED_RUNS").unwrap_or(RUNS as u64);
            (0..runs).map(|_| rand::random()).collect()
        }
    }
}

/// Plays these seeds, several at once, and tells what came of each.
fn play_all<'a>(
    seeds: Vec<u64>,
    nodes_of: impl Fn(u64) -> &'a RedlockNodes + Sync,
    conditions_of: impl Fn(u64) -> Conditions + Sync,
) -> Vec<(u64, anyhow::Result<History>)> {
    let (seeds, results) = (Mutex::new(seeds.into_iter().enumerate()), Mutex::new(Vec::new()));
    let next = || seeds.lock().unwrap().next();
    let play_on = || {
        while let Some((number, seed)) = next() {
            let name = name(&format!("seeded-{number}"));
            let result = play(seed, conditions_of(seed), nodes_of(seed), &name);
            results.lock().unwrap().push((seed, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(play_on);
        }
    });
    results.into_inner().unwrap()
}

/// Plays a seed, in a runtime of its own, with which all ends that was begun.
fn play(
    seed: u64,
    conditions: Conditions,
    nodes: &RedlockNodes,
    name: &ResourceName,
) -> anyhow::Result<History> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let playing = async { timeout(PATIENCE, conditions.play(seed, nodes, name)).await };
    match runtime.block_on(AssertUnwindSafe(playing).catch_unwind()) {
        Ok(in_time) => in_time?,
        Err(_) => bail!("it panicked, as told above"),
    }
}
