//! Lanes over a store whose loads can be held up.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fence::{Fence, Token};
use tokio::{
    sync::Semaphore,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::*;
use crate::{
    committer::{Committer, job::Unavailable, queue::Queue},
    config::Enforcement,
    metrics::Metrics,
    operation::{Action, Decided, Operation},
    row::Row,
    store::{
        Change, Decide, Store, Wanted,
        error::{ApplyError, ReadError, Unreachable, UnreadableRow},
        list::{Listing, Page},
    },
    transaction::{DecidedTransaction, Transaction},
};

/// A store that changes one resource at a time. Loads of resources whose names begin with `held` wait until
/// the gate is opened.
struct Gated {
    rows: Mutex<HashMap<ResourceName, Row>>,
    gate: Semaphore,
    /// How many loads wait at the gate.
    held: AtomicUsize,
    changes: AtomicUsize,
    /// How many more changes rivals are faster than.
    rivals: AtomicUsize,
}

impl Gated {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: Mutex::default(),
            gate: Semaphore::new(0),
            held: AtomicUsize::new(0),
            changes: AtomicUsize::new(0),
            rivals: AtomicUsize::new(0),
        })
    }

    /// Lets all loads pass from now on.
    fn open(&self) {
        self.gate.close();
    }

    fn changes(&self) -> usize {
        self.changes.load(Ordering::SeqCst)
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Waits until so many loads are held, and a while longer.
    async fn until_held(&self, count: usize) {
        let held = async {
            while self.held() < count {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(5), held).await.expect("they are loaded");
        sleep(Duration::from_millis(100)).await;
    }
}

#[async_trait]
impl Store for Gated {
    fn database(&self) -> &str {
        "gated"
    }

    fn has_transactions(&self) -> bool {
        false
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        let [Wanted { resource, .. }] = wanted else { panic!("{wanted:?}") };
        if resource.as_str().starts_with("held") {
            self.held.fetch_add(1, Ordering::SeqCst);
            drop(self.gate.acquire().await);
            self.held.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(vec![Ok(self.rows.lock().unwrap().get(*resource).cloned().unwrap_or_default())])
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let [Change { resource, after, .. }] = changes else { return Ok(Vec::new()) };
        let rivals = self.rivals.load(Ordering::SeqCst);
        if rivals > 0 {
            self.rivals.store(rivals - 1, Ordering::SeqCst);
            return Ok(vec![false]);
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.rows.lock().unwrap().insert((*resource).clone(), (*after).clone());
        Ok(vec![true])
    }

    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        let before = self.load(wanted).await.unwrap().into_iter().collect::<Result<Vec<_>, _>>()?;
        let after = decide(&before);
        let [resource] = wanted.iter().map(|wanted| wanted.resource).collect::<Vec<_>>()[..] else {
            panic!("{wanted:?}")
        };
        let change = Change { resource, before: &before[0], after: &after[0], group: None };
        Ok(before == after || self.apply(&[change]).await?[0])
    }

    async fn locked(&self, _resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        unreachable!("it has no locks")
    }

    fn connection_epoch(&self) -> u64 {
        0
    }

    async fn read_durable(&self, _wanted: Wanted<'_>) -> Result<Row, ReadError> {
        unreachable!("a committer loads")
    }

    async fn read(&self, _wanted: Wanted<'_>) -> Result<Row, ReadError> {
        unreachable!("a committer loads")
    }

    async fn list(&self, _page: &Page) -> Result<Listing, Unreachable> {
        unreachable!("a committer lists nothing")
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        unreachable!("a committer probes nothing")
    }

    async fn close(&self) {
        unreachable!("a committer closes nothing")
    }
}

fn start(store: &Arc<Gated>) -> (Queue, Committer) {
    let commits = Metrics::default().commits.clone();
    Committer::start(store.clone(), Enforcement::Enforce, commits)
}

fn operation(resource: &str, token: u64, action: Action) -> Operation {
    let fence = Fence { token: Token::new(token).unwrap(), holder: Default::default() };
    let (resource, offered) = (resource.parse().unwrap(), Some(fence));
    Operation { resource, offered, ceiling: Token::MAX, numbered: None, action }
}

type Submitted<D> = JoinHandle<Result<D, Unavailable>>;

fn submit(queue: &Queue, resource: &str, token: u64, action: Action) -> Submitted<Decided> {
    let (queue, operation) = (queue.clone(), operation(resource, token, action));
    tokio::spawn(async move { queue.submit(operation).await })
}

fn transact(queue: &Queue, resource: &str, token: u64) -> Submitted<DecidedTransaction> {
    let writes = vec![operation(resource, token, Action::Claim)];
    let transaction = Transaction { conditions: Vec::new(), writes, _memory: None };
    let queue = queue.clone();
    tokio::spawn(async move { queue.submit_transaction(Arc::new(transaction)).await })
}

/// Whether it is answered although others are held up.
async fn is_answered<D>(submitted: Submitted<D>) -> bool {
    timeout(Duration::from_secs(1), submitted).await.is_ok_and(|it| it.unwrap().is_ok())
}

#[tokio::test(start_paused = true)]
async fn slow_resource_holds_up_no_other() {
    for is_transaction in [false, true] {
        let store = Gated::new();
        let (queue, committer) = start(&store);
        let held: [Submitted<()>; 2] = ["held/1", "held/2"].map(|resource| {
            let (operation, transaction) = match is_transaction {
                false => (Some(submit(&queue, resource, 1, Action::Claim)), None),
                true => (None, Some(transact(&queue, resource, 1))),
            };
            tokio::spawn(async move {
                if let Some(operation) = operation {
                    operation.await.unwrap()?;
                }
                if let Some(transaction) = transaction {
                    transaction.await.unwrap()?;
                }
                Ok(())
            })
        });
        store.until_held(2).await;
        assert!(is_answered(submit(&queue, "free/1", 1, Action::Claim)).await, "{is_transaction}");
        assert!(is_answered(transact(&queue, "free/2", 1)).await, "{is_transaction}");
        assert_eq!(store.held(), 2, "the control");
        store.open();
        for held in held {
            held.await.unwrap().unwrap();
        }
        committer.drain().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_for_a_resource_share_its_next_change() {
    let store = Gated::new();
    let (queue, committer) = start(&store);
    let first = transact(&queue, "held/r", 1);
    store.until_held(1).await;
    let others: Vec<_> = (2..20).map(|token| transact(&queue, "held/r", token)).collect();
    // Nobody waits for this one any more. It would reject the next one.
    let abandoned = transact(&queue, "held/r", 99);
    sleep(Duration::from_millis(1)).await;
    abandoned.abort();
    let next = transact(&queue, "held/r", 20);
    sleep(Duration::from_millis(1)).await;
    store.open();
    for accepted in others.into_iter().chain([first, next]) {
        assert!(!accepted.await.unwrap().unwrap().is_rejection());
    }
    assert_eq!(store.changes(), 2);
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn jobs_that_lost_to_rivals_are_tried_again() {
    let store = Gated::new();
    let (queue, committer) = start(&store);
    store.rivals.store(2, Ordering::SeqCst);
    assert!(is_answered(submit(&queue, "free/1", 1, Action::Claim)).await);
    store.rivals.store(2, Ordering::SeqCst);
    assert!(is_answered(transact(&queue, "free/2", 1)).await);
    assert_eq!((store.changes(), store.rivals.load(Ordering::SeqCst)), (2, 0));
    committer.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_queued_jobs_are_answered_before_the_end() {
    let store = Gated::new();
    let (queue, committer) = start(&store);
    let reads: Vec<_> =
        (0..5).map(|number| submit(&queue, &format!("held/{number}"), 1, Action::Read)).collect();
    let transaction = transact(&queue, "held/t", 1);
    store.until_held(6).await;
    let draining = tokio::spawn(committer.drain());
    sleep(Duration::from_millis(1)).await;
    assert!(submit(&queue, "late", 1, Action::Claim).await.unwrap().is_err());
    store.open();
    draining.await.unwrap().unwrap();
    for read in reads {
        assert!(read.await.unwrap().is_ok());
    }
    assert!(transaction.await.unwrap().is_ok());
}
