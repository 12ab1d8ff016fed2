//! A store in memory for tests, whose locks, rivals and failures are as a test says.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fence::{Fence, ResourceName, Token};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{
    operation::{Action, Operation},
    row::Row,
    store::{
        Change, Decide, Store, Wanted, WantedValue,
        error::{ApplyError, ReadError, Unreachable, UnreadableRow},
        list::{Listing, Page},
    },
    transaction::Transaction,
};

/// The row that other servers pass to each other without a gap. Every third try that waits for it gets it.
pub(super) const CROWDED: &str = "crowded";
/// The row that a rival changes before each statement.
pub(super) const OVERTAKEN: &str = "overtaken";
/// The row that can't be decoded.
pub(super) const UNREADABLE: &str = "unreadable";
/// Among the locked resources, it says that these can't be asked for.
pub(super) const UNREACHABLE: &str = "unreachable";

/// A store whose loads of resources whose names begin with `held` wait until the gate is opened.
#[derive(Default)]
pub(super) struct FakeStore {
    changes_one_at_a_time: bool,
    pub(super) rows: Mutex<HashMap<ResourceName, Row>>,
    /// What was wanted of each row that was loaded.
    pub(super) wanted: Mutex<Vec<WantedValue>>,
    /// The resources of each statement, and those that were changed.
    pub(super) applied: Mutex<Vec<Vec<String>>>,
    pub(super) changed: Mutex<Vec<String>>,
    /// The errors of the next statements; with `None`, there is none.
    pub(super) errors: Mutex<VecDeque<Option<ApplyError>>>,
    /// Closed until the test opens it.
    gate: Gate,
    /// How many loads wait at the gate.
    held: AtomicUsize,
    /// How many more changes rivals are faster than.
    pub(super) rivals: AtomicUsize,
    locked: Mutex<HashSet<String>>,
    /// How many tries have waited for a lock.
    pub(super) blocked: AtomicUsize,
    /// How many tries under locks have begun.
    pub(super) under_locks: AtomicUsize,
    /// Chooses what fails.
    pub(super) failures: Mutex<Option<fastrand::Rng>>,
    /// The resources that a rival has changed meanwhile.
    pub(super) overtaken: Mutex<Vec<ResourceName>>,
}

struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl FakeStore {
    /// A store without transactions.
    pub(super) fn one_at_a_time() -> Self {
        Self { changes_one_at_a_time: true, ..Self::default() }
    }

    pub(super) fn lock<'a>(&self, resources: impl IntoIterator<Item = &'a str>) {
        *self.locked.lock().unwrap() = resources.into_iter().map(str::to_owned).collect();
    }

    /// Changes a row as another server does.
    pub(super) fn set_fence(&self, resource: &str, token: u64) {
        let mut rows = self.rows.lock().unwrap();
        rows.entry(resource.parse().unwrap()).or_default().fence = Some(fence(token));
    }

    /// Lets all loads pass from now on.
    pub(super) fn open(&self) {
        self.gate.0.close();
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Waits until so many loads are held, and a while longer.
    pub(super) async fn until_held(&self, count: usize) {
        let held = async {
            while self.held() < count {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(5), held).await.expect("they are loaded");
        sleep(Duration::from_millis(100)).await;
    }

    /// Waits for a lock, if one of the resources is locked, for as long as a statement does.
    async fn wait_for_locks<'a>(
        &self,
        mut resources: impl Iterator<Item = &'a ResourceName>,
        millis: u64,
    ) -> Result<(), ApplyError> {
        let is_locked = resources.any(|resource| {
            let is_third =
                millis == 100 && self.under_locks.load(Ordering::SeqCst).is_multiple_of(3);
            let is_crowded = resource.as_str() == CROWDED && !is_third;
            is_crowded || self.locked.lock().unwrap().contains(resource.as_str())
        });
        if is_locked {
            self.blocked.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_millis(millis)).await;
            return Err(ApplyError::Blocked);
        }
        Ok(())
    }

    /// Changes rows as rivals do: a certain one always, and another now and then if something is to fail.
    fn overtake(&self, changes: &[Change<'_>]) {
        let mut failures = self.failures.lock().unwrap();
        let chosen = failures.as_mut().and_then(|failures| match failures.u8(..5) {
            0 => failures.choice(changes),
            _ => None,
        });
        let always = changes.iter().find(|change| change.resource.as_str() == OVERTAKEN);
        for change in chosen.into_iter().chain(always) {
            let resource = change.resource.clone();
            self.rows.lock().unwrap().entry(resource.clone()).or_default().version += 1;
            self.overtaken.lock().unwrap().push(resource);
        }
    }

    /// Makes changes, unless their rows are others by now. Fails now and then, if something is to: as if a
    /// row was locked, as if a rival was faster, or with an unknown outcome, before or after the changes.
    fn make(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let names = |changes: &mut dyn Iterator<Item = &Change<'_>>| -> Vec<_> {
            changes.map(|change| change.resource.to_string()).collect()
        };
        self.applied.lock().unwrap().push(names(&mut changes.iter()));
        if let Some(Some(error)) = self.errors.lock().unwrap().pop_front() {
            return Err(error);
        }
        let lost = || Err(ApplyError::Unknown(sqlx::Error::Protocol("lost".to_owned())));
        let failure = self.failures.lock().unwrap().as_mut().map(|failures| failures.u8(..20));
        match failure {
            Some(0 | 1) => return Err(ApplyError::Blocked),
            Some(2 | 3) => return Ok(vec![false; changes.len()]),
            Some(4) => return lost(),
            _ => {}
        }
        let mut rows = self.rows.lock().unwrap();
        let unused = Row::default();
        let is_broken =
            |change: &&Change<'_>| rows.get(change.resource).unwrap_or(&unused) != change.before;
        let broken: Vec<_> = changes.iter().filter(is_broken).collect();
        let is_made = |change: &Change<'_>| {
            !broken.iter().any(|broken| {
                broken.resource == change.resource
                    || (change.group.is_some() && broken.group == change.group)
            })
        };
        let made: Vec<_> = changes.iter().map(is_made).collect();
        let applied: Vec<_> = changes.iter().filter(|change| is_made(change)).collect();
        rows.extend(applied.iter().map(|change| (change.resource.clone(), change.after.clone())));
        self.changed.lock().unwrap().extend(names(&mut applied.into_iter()));
        if failure == Some(5) { lost() } else { Ok(made) }
    }
}

#[async_trait]
impl Store for FakeStore {
    fn database(&self) -> &str {
        "fake"
    }

    fn has_transactions(&self) -> bool {
        !self.changes_one_at_a_time
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        assert!(self.has_transactions() || wanted.len() == 1, "{wanted:?}");
        self.wanted.lock().unwrap().extend(wanted.iter().map(|wanted| wanted.value));
        if wanted.iter().any(|wanted| wanted.resource.as_str().starts_with("held")) {
            self.held.fetch_add(1, Ordering::SeqCst);
            drop(self.gate.0.acquire().await);
            self.held.fetch_sub(1, Ordering::SeqCst);
        }
        let rows = self.rows.lock().unwrap();
        let load = |wanted: &Wanted<'_>| match wanted.resource.as_str() {
            UNREADABLE => Err(UnreadableRow::new(UNREADABLE, "of this test")),
            _ => Ok(rows.get(wanted.resource).cloned().unwrap_or_default()),
        };
        Ok(wanted.iter().map(load).collect())
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        assert!(self.has_transactions() || changes.len() == 1, "{changes:?}");
        assert!(changes.len() <= 256, "{} rows", changes.len());
        self.wait_for_locks(changes.iter().map(|change| change.resource), 20).await?;
        sleep(Duration::from_millis(1)).await;
        let rivals = self.rivals.load(Ordering::SeqCst);
        if rivals > 0 {
            self.rivals.store(rivals - 1, Ordering::SeqCst);
            return Ok(vec![false; changes.len()]);
        }
        self.overtake(changes);
        self.make(changes)
    }

    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        assert!(self.has_transactions());
        assert!(wanted.len() <= 256, "{} rows", wanted.len());
        self.under_locks.fetch_add(1, Ordering::SeqCst);
        self.wait_for_locks(wanted.iter().map(|wanted| wanted.resource), 100).await?;
        sleep(Duration::from_millis(5)).await;
        let before = self.load(wanted).await.unwrap().into_iter().collect::<Result<Vec<_>, _>>()?;
        let after = decide(&before);
        let rows = wanted.iter().zip(before.iter().zip(&after));
        let changes = rows.map(|(Wanted { resource, .. }, (before, after))| Change {
            resource,
            before,
            after,
            group: Some(0),
        });
        Ok(!self.make(&changes.collect::<Vec<_>>())?.contains(&false))
    }

    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        let locked = self.locked.lock().unwrap();
        if locked.contains(UNREACHABLE) {
            return Err(sqlx::Error::Protocol("of this test".to_owned()).into());
        }
        let is_locked = |resource: &&ResourceName| {
            resource.as_str() == CROWDED || locked.contains(resource.as_str())
        };
        Ok(resources.iter().map(is_locked).collect())
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
}

pub(super) fn fence(token: u64) -> Fence {
    Fence { token: Token::new(token).unwrap(), holder: Default::default() }
}

pub(super) fn operation(resource: &str, token: u64, action: Action) -> Operation {
    let (resource, offered) = (resource.parse().unwrap(), Some(fence(token)));
    Operation { resource, offered, ceiling: Token::MAX, numbered: None, action }
}

pub(super) fn transaction(writes: Vec<Operation>) -> Arc<Transaction> {
    Arc::new(Transaction { conditions: Vec::new(), writes, _memory: None })
}
