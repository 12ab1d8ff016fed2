//! A store in memory that notes what is loaded.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard},
};

use async_trait::async_trait;
use fence::ResourceName;
use storage_server::{
    ApplyError, Change, Decide, Described, Listing, Page, ReadError, ReadsAtOnce, Row, Store,
    StoredValue, Unreachable, UnreadableRow, Value, Wanted, WantedValue,
};
use tokio::sync::watch;

type Rows = HashMap<ResourceName, Row>;
type RowChange = Box<dyn FnOnce(&mut Rows) + Send>;

/// The way that a row was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Load,
    ReadDurable,
    Read,
}

#[derive(Default)]
pub(super) struct MemoryStore {
    rows: Mutex<Rows>,
    loads: Mutex<Vec<(Way, WantedValue)>>,
    before_durable_read: Mutex<Option<RowChange>>,
    durable_reads: Mutex<DurableReads>,
    is_closed: watch::Sender<bool>,
}

#[derive(Default)]
struct DurableReads {
    now: usize,
    most: usize,
}

/// Durable reads that wait for it.
pub(super) struct Gate(watch::Sender<bool>);

impl Gate {
    pub(super) fn open(&self) {
        self.0.send_replace(false);
    }
}

impl MemoryStore {
    /// How many connections it has for durable reads.
    pub(super) const CONNECTIONS: usize = 3;

    /// Changes rows as another server would.
    pub(super) fn change(&self, change: impl FnOnce(&mut Rows)) {
        change(&mut self.rows());
    }

    /// Changes rows just before the next durable read.
    pub(super) fn before_durable_read(&self, change: impl FnOnce(&mut Rows) + Send + 'static) {
        *self.before_durable_read.lock().unwrap() = Some(Box::new(change));
    }

    /// Makes durable reads wait from now on.
    pub(super) fn close_durable_reads(&self) -> Gate {
        self.is_closed.send_replace(true);
        Gate(self.is_closed.clone())
    }

    /// How many durable reads there were at once.
    pub(super) fn most_durable_reads(&self) -> usize {
        self.durable_reads.lock().unwrap().most
    }

    fn count_durable_read(&self) {
        let mut reads = self.durable_reads.lock().unwrap();
        reads.now += 1;
        reads.most = reads.most.max(reads.now);
    }

    /// What was loaded since the last call.
    pub(super) fn take_loads(&self) -> Vec<(Way, WantedValue)> {
        mem::take(&mut self.loads.lock().unwrap())
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap()
    }

    fn load_one(&self, way: Way, Wanted { resource, value }: Wanted<'_>) -> Row {
        self.loads.lock().unwrap().push((way, value));
        let row = self.rows().get(resource).cloned().unwrap_or_default();
        let most = match value {
            WantedValue::Description => None,
            WantedValue::AtMost(most) => Some(most),
        };
        match &row.value {
            StoredValue::Present(Value { content, written_with })
                if Some(content.bytes.len()) > most =>
            {
                let described = Described {
                    content_type: Some(content.content_type.clone()),
                    size: content.bytes.len() as u64,
                    written_with: written_with.clone(),
                };
                Row { value: StoredValue::NotLoaded(described), ..row }
            }
            _ => row,
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn database(&self) -> &str {
        "memory"
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        Ok(wanted.iter().map(|wanted| Ok(self.load_one(Way::Load, *wanted))).collect())
    }

    async fn read_durable(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        let change = self.before_durable_read.lock().unwrap().take();
        if let Some(change) = change {
            self.change(change);
        }
        self.count_durable_read();
        let mut is_closed = self.is_closed.subscribe();
        is_closed.wait_for(|is_closed| !is_closed).await.unwrap();
        self.durable_reads.lock().unwrap().now -= 1;
        Ok(self.load_one(Way::ReadDurable, wanted))
    }

    async fn read(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        Ok(self.load_one(Way::Read, wanted))
    }

    fn reads_at_once(&self) -> ReadsAtOnce {
        ReadsAtOnce { visible: 2, durable: Self::CONNECTIONS, lists: 1 }
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let mut rows = self.rows();
        let apply = |Change { resource, before, after, .. }: &Change<'_>| {
            let row = rows.entry((*resource).clone()).or_default();
            let is_as_before = (&row.fence, row.version) == (&before.fence, before.version);
            if is_as_before {
                let value = match &after.value {
                    StoredValue::Unknown | StoredValue::NotLoaded(_) => row.value.clone(),
                    value => value.clone(),
                };
                *row = Row { value, ..(*after).clone() };
            }
            is_as_before
        };
        Ok(changes.iter().map(apply).collect())
    }

    async fn apply_under_locks(
        &self,
        _wanted: &[Wanted<'_>],
        _decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        unreachable!("nothing is blocked")
    }

    async fn list(&self, _page: &Page) -> Result<Listing, Unreachable> {
        unreachable!("nothing is listed")
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        Ok(())
    }
}
