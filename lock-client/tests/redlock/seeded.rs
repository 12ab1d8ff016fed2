//! The code checked against the promises of its model: many short runs of real clients and real
//! nodes. Requests arrive late, get lost or are executed twice, as a seed decides. The history of
//! each run is checked for the properties of the model (`lock-client/redlock-model`).
//!
//! A violation prints its seed, and how to run it again. The seed decides the faults and the
//! clients' steps, but not the timing. So a single seed is run many times.
//!
//! ```sh
//! # Repeats one seed:
//! FENCED_SEED=33 cargo test -p lock-client --all-features --test locks redlock::seeded
//! # Runs 1000 seeds:
//! FENCED_RUNS=1000 cargo test -p lock-client --all-features --test locks redlock::seeded
//! ```
//!
//! The storage is in memory, and has the rule of the crate `fence`, like every storage.

mod client;
mod disturber;
mod handmade;
mod history;
mod maintenance;
mod run;
mod storage;
mod witness;

use std::{
    env,
    panic::AssertUnwindSafe,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::bail;
use fence::ResourceName;
use futures_util::FutureExt;
use lock_client::redlock::operator::Operator;
use rand::{SeedableRng, rngs::StdRng};
use testbed::{NodeKind, RedlockNodes};
use tokio::{runtime, time::timeout};

use self::{
    client::LONGEST_TTL,
    disturber::Disturbance,
    history::{History, Violation},
    maintenance::{ANSWER_TIMEOUT, maintain},
    run::Conditions,
    storage::Rule,
};
use crate::lock_service::ttl;
use crate::names::name;
use crate::start_cluster::start_cluster;
use testbed::proxy::Odds;

/// The number of runs, unless `FENCED_RUNS` says otherwise; also the repetitions of a single seed.
const RUNS: usize = 100;
/// How many runs are under way at once. They mostly wait.
const AT_ONCE: usize = 16;
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn real_clients_keep_the_promises_of_the_model() {
    let (three, five) = tokio::join!(start(3), start(5));
    let nodes_of = |seed: u64| if seed.is_multiple_of(4) { &five } else { &three };
    let mut failed = Vec::new();
    for (seed, result) in run_all(seeds(), nodes_of, Conditions::from_seed) {
        let failure = match result {
            Ok(history) => match Conditions::from_seed(seed).violations(&history) {
                none if none.is_empty() => continue,
                violations => format!("{violations:#?}\nin {history:?}"),
            },
            Err(error) => format!("{error:#}"),
        };
        eprintln!(
            "{failure}\nwith seed {seed}. To run it again:\n    \
             FENCED_SEED={seed} cargo test -p lock-client --all-features --test locks \
             redlock::seeded\n"
        );
        failed.push(seed);
    }
    assert!(failed.is_empty(), "{} runs failed, see above. Their seeds: {failed:?}", failed.len());
}

/// Nodes restart and are admitted again, and members are replaced.
#[tokio::test]
async fn real_clients_keep_the_promises_while_the_members_change() {
    let may_restart = NodeKind::With(&["--enable-debug-command", "yes"]);
    let nodes = RedlockNodes::start(&[may_restart; 5]).await.unwrap();
    let operator = Operator::new(&nodes.urls()[..3]).unwrap().answer_within(ANSWER_TIMEOUT);
    operator.start_cluster(ttl(LONGEST_TTL.as_millis() as u64)).await.unwrap();
    let conditions =
        Conditions { odds: Odds::new(), disturbance: Disturbance::Maintained, rule: Rule::Fenced };
    let [has_done_both, done] = [(); 2].map(|()| AtomicBool::new(false));
    let (results, work) = thread::scope(|scope| {
        let maintaining = scope.spawn(|| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let random = StdRng::from_rng(&mut rand::rng());
            runtime.block_on(maintain(&nodes, vec![0, 1, 2], random, &has_done_both, &done))
        });
        // The clients work until nodes were restarted and replaced.
        let seeds = seeds();
        let least = seeds.len();
        let seeds = seeds.into_iter().cycle().enumerate().take_while(|&(number, _)| {
            let waits = || !has_done_both.load(Ordering::Relaxed) && !maintaining.is_finished();
            number < least || waits()
        });
        let results = run_all(seeds.map(|(_, seed)| seed), |_| &nodes, |_| conditions.clone());
        done.store(true, Ordering::Relaxed);
        (results, maintaining.join().unwrap())
    });
    println!("{work:?}");
    assert!(work.restarts > 0 && work.replacements > 0, "{work:?}");
    let mut issued = 0;
    for (seed, result) in results {
        let history = result.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        assert_eq!(conditions.violations(&history), [], "seed {seed}");
        issued += history.issued.len();
    }
    assert!(issued > RUNS, "only {issued} tokens");
}

#[tokio::test]
async fn check_finds_lost_counters() {
    let found = find_violations(Disturbance::CountersLost, Rule::Fenced, History::violations).await;
    let are_tokens =
        |found: &Violation| matches!(found, Violation::OutOfOrder(..) | Violation::SharedToken(..));
    assert!(
        found.iter().all(are_tokens),
        "the rule and the reissue still protect the storage: {found:?}"
    );
}

#[tokio::test]
async fn check_finds_locks_that_expire_early_on_all_nodes() {
    find_violations(Disturbance::AllJump, Rule::Fenced, History::held_together).await;
}

#[tokio::test]
async fn check_finds_a_storage_without_a_fence() {
    let found = find_violations(Disturbance::Uneven, Rule::Unfenced, History::violations).await;
    let is_lost = |found: &Violation| matches!(found, Violation::Lost(_));
    assert!(found.iter().all(is_lost), "the lock itself is sound: {found:?}");
}

/// Runs seeds with this disturbance, and no faults of the network, until a violation is found. How
/// soon that is depends on the timing.
async fn find_violations(
    disturbance: Disturbance,
    rule: Rule,
    violations: fn(&History) -> Vec<Violation>,
) -> Vec<Violation> {
    let nodes = start(3).await;
    let conditions = Conditions { odds: Odds::new(), disturbance, rule };
    for first in (0..1000).step_by(AT_ONCE) {
        let results =
            run_all((first..).take(AT_ONCE), |_| &nodes, |_| conditions.clone()).into_iter();
        let found: Vec<_> = results.flat_map(|(_, result)| violations(&result.unwrap())).collect();
        if !found.is_empty() {
            return found;
        }
    }
    panic!("1000 runs without a violation");
}

async fn start(number: usize) -> RedlockNodes {
    let nodes = RedlockNodes::start(&vec![NodeKind::FORGETFUL; number]).await.unwrap();
    start_cluster(&nodes, Duration::from_secs(60)).await;
    nodes
}

/// Returns the seeds to run.
fn seeds() -> Vec<u64> {
    let number = |variable| env::var(variable).ok().map(|value| value.parse().expect(variable));
    match number("FENCED_SEED") {
        Some(seed) => vec![seed; RUNS],
        None => {
            let runs = number("FENCED_RUNS").unwrap_or(RUNS as u64);
            (0..runs).map(|_| rand::random()).collect()
        }
    }
}

/// Runs these seeds, several at once, and returns the result of each.
fn run_all<'a>(
    seeds: impl IntoIterator<Item = u64, IntoIter: Send>,
    nodes_of: impl Fn(u64) -> &'a RedlockNodes + Sync,
    conditions_of: impl Fn(u64) -> Conditions + Sync,
) -> Vec<(u64, anyhow::Result<History>)> {
    let seeds = Mutex::new(seeds.into_iter().enumerate());
    let results = Mutex::new(Vec::new());
    let next = || seeds.lock().unwrap().next();
    let work = || {
        while let Some((number, seed)) = next() {
            let name = name(&format!("seeded-{number}"));
            let result = run(seed, conditions_of(seed), nodes_of(seed), &name);
            results.lock().unwrap().push((seed, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap()
}

/// Runs a seed in a runtime of its own. When the runtime ends, so do all its tasks.
fn run(
    seed: u64,
    conditions: Conditions,
    nodes: &RedlockNodes,
    name: &ResourceName,
) -> anyhow::Result<History> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let running = async { timeout(PATIENCE, conditions.run(seed, nodes, name)).await };
    match runtime.block_on(AssertUnwindSafe(running).catch_unwind()) {
        Ok(in_time) => in_time?,
        Err(_) => bail!("it panicked, see above"),
    }
}
