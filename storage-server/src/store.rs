//! The databases that persist resources.
//!
//! A store knows nothing of the fencing rule. It loads rows, and takes them back changed on one
//! condition: that they still are as they were loaded. So the rule exists once, in Rust. Nothing
//! that a server remembers decides anything, and any number of servers may share one database.

mod columns;
pub(crate) mod doctor;
pub(crate) mod error;
mod from_row;
mod kept_pool;
pub(crate) mod list;
pub(crate) mod maintenance;
mod object_storage;
pub(crate) mod open;
mod postgres;
pub(crate) mod replication;
pub(crate) mod schema;
pub(crate) mod sqlite;

use async_trait::async_trait;
use fence::ResourceName;

pub(crate) use self::{
    columns::BAD_CONTENT_TYPE, object_storage::ENDPOINT, postgres::PUBLIC_PARAMETERS,
};
use self::{
    error::{ApplyError, ReadError, Unreachable, UnreadableRow},
    list::{Listing, Page},
};
use crate::row::Row;

/// A database that persists resources.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The database's address, for logs: never with a password.
    fn database(&self) -> &str;

    /// Whether it changes several resources in one transaction. If not, [`apply`](Self::apply) and
    /// [`load`](Self::load) are called with one resource each, and
    /// [`apply_under_locks`](Self::apply_under_locks) never.
    fn has_transactions(&self) -> bool {
        true
    }

    /// Loads the rows of resources, in the order of `wanted`, all as of one moment. The row of a
    /// resource that was never used is `Row::default()`.
    ///
    /// The rows are durable: what is loaded survives a crash. An unreadable row fails alone.
    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable>;

    /// Loads the row of one resource, which is as durable as those of [`load`](Self::load).
    async fn read_durable(&self, wanted: Wanted<'_>) -> Result<Row, ReadError>;

    /// Loads the row of one resource, for a read that claims nothing.
    async fn read(&self, wanted: Wanted<'_>) -> Result<Row, ReadError>;

    /// Loads the row of one resource as [`read`](Self::read) does, or from a replica if there is one.
    /// Waits for a moment if the row is older than a version, and then returns what there is.
    async fn read_version(&self, wanted: Wanted<'_>, _version: u64) -> Result<Row, ReadError> {
        self.read(wanted).await
    }

    /// How many calls of [`read`](Self::read), [`read_durable`](Self::read_durable) and [`list`](Self::list) it
    /// takes at once. Further ones wait.
    fn reads_at_once(&self) -> ReadsAtOnce {
        ReadsAtOnce { visible: 32, durable: 32, lists: 2 }
    }

    /// Makes the changes durable in one transaction, and returns for each whether it was made. A
    /// change is left out, with all others of its [group](Change::group), if its row is no longer as it was
    /// loaded. It may be retried from [`load`](Self::load).
    ///
    /// The changes are of distinct resources, in the byte order of their names.
    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError>;

    /// Loads resources and changes them as `decide` says, all or none of them, and returns whether
    /// the changes were made. All rows are locked from before they are loaded until the changes are
    /// durable, those that stay as they are included. [`apply`](Self::apply) leaves a change out
    /// whenever a rival is faster; here, rivals wait.
    ///
    /// The resources are distinct, and in the byte order of their names.
    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError>;

    /// Whether another transaction holds a lock on the row at this moment, for each resource.
    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        Ok(vec![false; resources.len()])
    }

    /// A number that changes when a connection was replaced. The new one may lead to a
    /// database that has lost changes, such as a replica that was promoted.
    fn connection_epoch(&self) -> u64 {
        0
    }

    /// Lists resources that have a value, in the byte order of their names. Logs unreadable rows, and
    /// leaves them out.
    async fn list(&self, page: &Page) -> Result<Listing, Unreachable>;

    /// Checks that the database can be read, and that it makes a change durable.
    async fn probe(&self) -> Result<(), Unreachable>;

    /// Leaves the database in good order, after all other work.
    async fn close(&self) {}
}

/// How many reads a store takes at once: its connections for them, which no other call uses. There are
/// at least two for reads of each kind, because small ones must not wait for large ones.
#[derive(Clone, Copy, Debug)]
pub struct ReadsAtOnce {
    /// Of calls of [`Store::read`], and of [`Store::read_version`].
    pub visible: usize,
    /// Of calls of [`Store::read_durable`].
    pub durable: usize,
    /// Of calls of [`Store::list`].
    pub lists: usize,
}

/// Makes the new rows of resources from their current ones.
pub type Decide<'a> = Box<dyn FnOnce(&[Row]) -> Vec<Row> + Send + 'a>;

/// A resource to load.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The resource.
    pub resource: &'a ResourceName,
    /// How much of its value to load.
    pub value: WantedValue,
}

/// How much of a value to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedValue {
    /// Nothing of it, only its description.
    Description,
    /// The value if it has at most so many bytes. Of a larger one, its description.
    AtMost(usize),
}

impl WantedValue {
    /// The largest value that is loaded, in bytes; `None` if none is.
    fn most_bytes(self) -> Option<i64> {
        match self {
            Self::Description => None,
            Self::AtMost(bytes) => Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
        }
    }
}

/// A resource to change.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The resource.
    pub resource: &'a ResourceName,
    /// Its row as it was loaded.
    pub before: &'a Row,
    /// Its new row. In a group, it may be the same: then the row is only compared, and stays as it is until
    /// the group is durable.
    pub after: &'a Row,
    /// The group whose changes are made together or not at all. A change without a group is made by itself.
    pub group: Option<usize>,
}

impl Change<'_> {
    /// Whether the row is only compared.
    fn is_check(&self) -> bool {
        self.group.is_some() && self.before == self.after
    }
}

/// The changes of the rows that do not stay as they are.
fn changes_between<'a>(
    wanted: &[Wanted<'a>],
    before: &'a [Row],
    after: &'a [Row],
) -> Vec<Change<'a>> {
    let rows = wanted.iter().zip(before.iter().zip(after));
    rows.filter(|(_, (before, after))| before != after)
        .map(|(wanted, (before, after))| {
            let resource = wanted.resource;
            Change { resource, before, after, group: None }
        })
        .collect()
}
