//! The committer over a store whose loads and changes can be held up.

mod random;

use std::sync::atomic::Ordering;

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{lane::MAX_WAITING, *};
use crate::{
    committer::{
        Committer,
        fake_store::{CROWDED, FakeStore, operation, transaction},
        job::{Unavailable, UnavailableOutcome},
        queue::Queue,
    },
    config::Enforcement,
    metrics::Metrics,
    operation::Action,
    transaction::DecidedTransaction,
};

const LOCKED: &str = "other transactions kept the resource locked for too long";

fn start() -> (Arc<FakeStore>, Queue, Committer) {
    start_on(FakeStore::default())
}

/// A store that changes one resource at a time.
fn start_one_at_a_time() -> (Arc<FakeStore>, Queue, Committer) {
    start_on(FakeStore::one_at_a_time())
}

fn start_on(store: FakeStore) -> (Arc<FakeStore>, Queue, Committer) {
    let (store, commits) = (Arc::new(store), Metrics::default().commits.clone());
    let (queue, committer) = Committer::start(store.clone(), Enforcement::Enforce, commits);
    (store, queue, committer)
}

type Submitted = JoinHandle<Result<DecidedTransaction, Unavailable>>;

/// Submits a transaction that does the same with each of these resources.
fn submit(queue: &Queue, resources: &[&str], token: u64, action: Action) -> Submitted {
    let write = |resource: &&str| operation(resource, token, action.clone());
    let transaction = transaction(resources.iter().map(write).collect());
    let queue = queue.clone();
    tokio::spawn(async move { queue.submit_transaction(transaction).await })
}

fn claim(queue: &Queue, resources: &[&str], token: u64) -> Submitted {
    submit(queue, resources, token, Action::Claim)
}

/// Claims a resource, and so many others of its own.
fn claim_with(queue: &Queue, resource: &str, number: usize, others: usize) -> Submitted {
    let names: Vec<_> = (0..others).map(|other| format!("r/{number}/{other}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).chain([resource]).collect();
    claim(queue, &names, 1)
}

/// Why there was no decision.
async fn reason(submitted: Submitted) -> String {
    let unavailable = submitted.await.unwrap().unwrap_err();
    assert_eq!(unavailable.outcome, UnavailableOutcome::None);
    unavailable.reason
}

async fn all_are_decided(submitted: impl IntoIterator<Item = Submitted>) {
    for job in submitted {
        job.await.unwrap().unwrap();
    }
}

/// Whether it is answered although others are held up.
async fn is_answered(submitted: Submitted) -> bool {
    timeout(Duration::from_secs(1), submitted).await.is_ok_and(|it| it.unwrap().is_ok())
}

fn changes(store: &FakeStore) -> usize {
    store.applied.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn slow_resource_holds_up_no_other() {
    let (store, queue, committer) = start_one_at_a_time();
    let held = ["held/1", "held/2"].map(|resource| claim(&queue, &[resource], 1));
    store.until_held(2).await;
    assert!(is_answered(claim(&queue, &["free"], 1)).await);
    assert_eq!(store.held(), 2, "the control");
    store.open();
    all_are_decided(held).await;
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_for_a_resource_share_its_next_change() {
    let (store, queue, committer) = start_one_at_a_time();
    let first = claim(&queue, &["held/r"], 1);
    store.until_held(1).await;
    let others: Vec<_> = (2..20).map(|token| claim(&queue, &["held/r"], token)).collect();
    // Nobody waits for this one any more. It would reject the next one.
    let abandoned = claim(&queue, &["held/r"], 99);
    sleep(Duration::from_millis(1)).await;
    abandoned.abort();
    let next = claim(&queue, &["held/r"], 20);
    sleep(Duration::from_millis(1)).await;
    store.open();
    for accepted in others.into_iter().chain([first, next]) {
        assert!(!accepted.await.unwrap().unwrap().is_rejection());
    }
    assert_eq!(changes(&store), 2);
    committer.drain().await.unwrap();
}

/// At once at first, and then after a pause: such stores throttle who asks too often.
#[tokio::test(start_paused = true)]
async fn jobs_that_lost_to_rivals_are_tried_again() {
    let (store, queue, committer) = start_one_at_a_time();
    store.rivals.store(2, Ordering::SeqCst);
    assert!(is_answered(claim(&queue, &["r"], 1)).await);
    assert_eq!((changes(&store), store.rivals.load(Ordering::SeqCst)), (1, 0));

    store.rivals.store(usize::MAX, Ordering::SeqCst);
    let lost = claim(&queue, &["r"], 2);
    sleep(Duration::from_secs(2)).await;
    let tries = usize::MAX - store.rivals.load(Ordering::SeqCst);
    assert!((50..200).contains(&tries), "{tries}");
    store.rivals.store(0, Ordering::SeqCst);
    assert!(is_answered(lost).await);
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_queued_jobs_are_answered_before_the_end() {
    let (store, queue, committer) = start_one_at_a_time();
    let held = |number: usize| submit(&queue, &[&format!("held/{number}")], 1, Action::Read);
    let reads: Vec<_> = (0..5).map(held).collect();
    store.until_held(5).await;
    let draining = tokio::spawn(committer.drain());
    sleep(Duration::from_millis(1)).await;
    assert!(claim(&queue, &["late"], 1).await.unwrap().is_err());
    store.open();
    draining.await.unwrap().unwrap();
    all_are_decided(reads).await;
}

#[tokio::test(start_paused = true)]
async fn resources_that_are_changed_by_themselves_are_few_at_once() {
    let (store, queue, committer) = start_one_at_a_time();
    let held = (0..MAX_BY_THEMSELVES + 50).map(|number| format!("held/{number}"));
    let held: Vec<_> = held.map(|name| claim(&queue, &[&name], 1)).collect();
    store.until_held(MAX_BY_THEMSELVES).await;
    assert_eq!(store.held(), MAX_BY_THEMSELVES);
    store.open();
    all_are_decided(held).await;
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn locked_resource_holds_up_no_other() {
    let (store, queue, committer) = start();
    store.lock(["c"]);
    let blocked = claim(&queue, &["c"], 1);
    let blocked_both = claim(&queue, &["a", "c"], 2);
    sleep(Duration::from_millis(200)).await;
    for round in 0..20 {
        let began = Instant::now();
        let another = claim(&queue, &["c", "d"], 2);
        assert!(is_answered(claim(&queue, &["b"], 1)).await, "{round}");
        assert!(is_answered(claim(&queue, &["a"], 1)).await, "it shares a transaction, {round}");
        assert!(is_answered(claim(&queue, &["b", "d"], 3)).await, "{round}");
        let waited = began.elapsed();
        assert!(waited < Duration::from_millis(100), "{round}: {waited:?}");
        another.abort();
    }
    assert!(store.blocked.load(Ordering::SeqCst) > 0, "the control");
    assert!(!blocked.is_finished() && !blocked_both.is_finished());
    // All that is queued is answered before the end.
    let draining = tokio::spawn(committer.drain());
    sleep(Duration::from_millis(50)).await;
    store.lock([]);
    draining.await.unwrap().unwrap();
    all_are_decided([blocked, blocked_both]).await;
    assert!(claim(&queue, &["late"], 1).await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn late_jobs_are_given_up_and_did_not_take_effect() {
    let (store, queue, committer) = start();
    // 1. A lock is in the way for 5 s.
    store.lock(["c"]);
    let began = Instant::now();
    let (one, both) = (claim(&queue, &["c"], 1), claim(&queue, &["a", "c"], 1));
    assert_eq!((reason(one).await.as_str(), reason(both).await.as_str()), (LOCKED, LOCKED));
    let waited = began.elapsed().as_secs_f64();
    assert!((5.0..5.5).contains(&waited), "{waited}");

    // 2. The database is slow: a job that is behind a batch waits for 15 s.
    let held = claim(&queue, &["held"], 1);
    store.until_held(1).await;
    let (one, both) = (claim(&queue, &["b"], 1), claim(&queue, &["a", "b"], 1));
    sleep(Duration::from_secs(14)).await;
    let in_time = claim(&queue, &["d"], 1);
    assert!(queue.oldest_waited() > Duration::from_secs(13));
    sleep(Duration::from_secs(1)).await;
    store.open();
    let slow = "the database has been too slow for too long";
    assert_eq!((reason(one).await.as_str(), reason(both).await.as_str()), (slow, slow));
    all_are_decided([held, in_time]).await;
    let rows = store.rows.lock().unwrap().keys().map(ToString::to_string).collect::<HashSet<_>>();
    assert_eq!(rows, ["held", "d"].map(str::to_owned).into());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(queue.oldest_waited(), Duration::ZERO);
    committer.drain().await.unwrap();
}

/// Jobs behind a lock or rivals are given up after 5 s. A stall of the database before that does not count.
#[tokio::test(start_paused = true)]
async fn first_obstacle_after_a_stall_is_no_reason_to_give_up() {
    for is_locked in [false, true] {
        let (store, queue, committer) = start();
        let held = claim(&queue, &["held"], 1);
        store.until_held(1).await;
        let jobs: Vec<_> = (0..100).map(|number| claim_with(&queue, "r", number, 1)).collect();
        sleep(Duration::from_secs(6)).await;
        match is_locked {
            true => store.lock(["r"]),
            false => store.rivals.store(2, Ordering::SeqCst),
        }
        store.open();
        sleep(Duration::from_millis(300)).await;
        store.lock([]);
        all_are_decided(jobs.into_iter().chain([held])).await;
        committer.drain().await.unwrap();
    }
}

/// Under locks, rivals wait. Jobs that only lost to them are not behind a lock, and none is too many.
#[tokio::test(start_paused = true)]
async fn jobs_whose_rivals_are_always_faster_are_decided_under_locks() {
    let (store, queue, committer) = start();
    store.rivals.store(usize::MAX, Ordering::SeqCst);
    let began = Instant::now();
    let both = claim(&queue, &["b", "c"], 1);
    let jobs: Vec<_> = (0..1000).map(|_| claim(&queue, &["r"], 1)).collect();
    all_are_decided(jobs.into_iter().chain([both])).await;
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn jobs_that_lose_once_are_tried_again_in_batches_however_long_they_have_waited() {
    for (lost, is_under_locks) in [(1, false), (1000, true)] {
        let (store, queue, committer) = start();
        let held = claim(&queue, &["held"], 1);
        store.until_held(1).await;
        let late = claim(&queue, &["r"], 1);
        sleep(Duration::from_millis(100)).await;
        store.rivals.store(lost, Ordering::SeqCst);
        store.open();
        all_are_decided([held, late]).await;
        assert_eq!(store.under_locks.load(Ordering::SeqCst) > 0, is_under_locks, "{lost}");
        committer.drain().await.unwrap();
    }
}

/// Each try finds new jobs that have queued meanwhile.
#[tokio::test(start_paused = true)]
async fn resources_under_load_return_to_the_batches_when_they_are_free() {
    for resources in [&["c"][..], &["a", "c"]] {
        let (store, queue, committer) = start();
        let delete =
            || submit(&queue, resources, 1, Action::Delete { condition: Default::default() });
        store.lock(["c"]);
        let mut jobs = vec![delete()];
        sleep(Duration::from_millis(150)).await;
        store.lock([]);
        for _ in 0..300 {
            jobs.push(delete());
            sleep(Duration::from_millis(1)).await;
        }
        assert!(changes(&store) > 50, "{} batches", changes(&store));
        all_are_decided(jobs).await;
        committer.drain().await.unwrap();
    }
}

/// Whether they are locked all at once, or long before.
#[tokio::test(start_paused = true)]
async fn row_that_was_locked_for_a_moment_does_not_wait_behind_others_that_stay_locked() {
    for before in [0, 2000] {
        let (store, queue, committer) = start();
        let locks: Vec<_> = (0..300).map(|number| format!("c/{number}")).collect();
        let locked = || locks.iter().map(String::as_str);
        store.lock(locked().chain(["y", "z"]));
        let blocked: Vec<_> = locks
            .iter()
            .enumerate()
            .map(|(number, lock)| claim_with(&queue, lock, number, number % 2))
            .collect();
        sleep(Duration::from_millis(before)).await;
        let began = Instant::now();
        let freed = [claim(&queue, &["y"], 1), claim(&queue, &["a", "z"], 1)];
        sleep(Duration::from_millis(21)).await;
        store.lock(locked());
        all_are_decided(freed).await;
        let waited = began.elapsed();
        assert!(waited < Duration::from_millis(300), "{waited:?}");
        assert!(blocked.iter().all(|job| !job.is_finished()), "the control");
        store.lock([]);
        all_are_decided(blocked).await;
        committer.drain().await.unwrap();
    }
}

/// A try has no room for all jobs behind one of the locks, nor are there places to try all lanes.
#[tokio::test(start_paused = true)]
async fn jobs_behind_many_locks_are_not_given_up_later() {
    let (store, queue, committer) = start();
    let locks: Vec<_> = (0..128).map(|number| format!("c/{number}")).collect();
    store.lock(locks.iter().map(String::as_str));
    let began = Instant::now();
    let large = (0..40).map(|number| claim_with(&queue, "c/0", number, 60));
    let jobs: Vec<_> = large
        .chain(locks.iter().enumerate().flat_map(|(number, lock)| {
            [claim(&queue, &[lock], 1), claim_with(&queue, lock, number, 1)]
        }))
        .collect();
    sleep(Duration::from_secs(1)).await;
    // The end of the server makes no difference.
    committer.drain().await.unwrap();
    let waited = began.elapsed().as_secs_f64();
    assert!((5.0..5.7).contains(&waited), "{waited}");
    for job in jobs {
        assert_eq!(reason(job).await, LOCKED);
    }
}

/// While they wait for it, their other rows are locked.
#[tokio::test(start_paused = true)]
async fn transactions_behind_a_lock_wait_for_it_now_and_then() {
    let (store, queue, committer) = start();
    store.lock(["c"]);
    let mut jobs = Vec::new();
    for round in 0..100 {
        jobs.push(claim_with(&queue, "c", round, 1));
        sleep(Duration::from_millis(10)).await;
    }
    let waits = store.blocked.load(Ordering::SeqCst);
    assert!((2..=5).contains(&waits), "{waits}");
    store.lock([]);
    all_are_decided(jobs).await;
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn row_that_other_servers_lock_all_the_time_is_waited_for() {
    let (_, queue, committer) = start();
    let mut jobs = Vec::new();
    for round in 0..600 {
        jobs.push(claim_with(&queue, CROWDED, round, round % 2));
        sleep(Duration::from_millis(10)).await;
    }
    all_are_decided(jobs).await;
    committer.drain().await.unwrap();
}

/// Also if there always are lanes whose rows are free.
#[tokio::test(start_paused = true)]
async fn row_that_is_never_free_gets_its_turn_among_free_ones() {
    let (store, queue, committer) = start();
    store.rivals.store(usize::MAX, Ordering::SeqCst);
    let crowded = claim(&queue, &[CROWDED], 1);
    let mut others = Vec::new();
    for round in 0..1200 {
        others.push(claim(&queue, &[&format!("r/{round}")], 1));
        sleep(Duration::from_micros(2500)).await;
    }
    assert!(crowded.is_finished());
    all_are_decided(others.into_iter().chain([crowded])).await;
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn locked_resource_does_not_fill_the_queue() {
    let (store, queue, committer) = start();
    store.lock(["c"]);
    let first = claim(&queue, &["c"], 1);
    sleep(Duration::from_millis(50)).await;
    let others: Vec<_> = (0..600).map(|_| claim(&queue, &["c"], 1)).collect();
    sleep(Duration::from_millis(500)).await;
    store.lock([]);
    let (mut decided, mut rejected) = (0, 0);
    for job in others.into_iter().chain([first]) {
        match job.await.unwrap() {
            Ok(_) => decided += 1,
            Err(unavailable) => {
                let full = "the resource is locked, and too many operations wait for it";
                assert_eq!(unavailable.reason, full);
                rejected += 1;
            }
        }
    }
    assert!(decided > MAX_WAITING && rejected > 0, "{decided} and {rejected}");
    committer.drain().await.unwrap();
}
