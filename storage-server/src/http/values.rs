//! How rows and their values are read: a large value over a connection of its own, with memory, and only if it
//! is sent.

use fence::ResourceName;
use tokio::sync::OwnedSemaphorePermit;

use super::{problem::Problem, session::Session};
use crate::{
    committer::job::UnavailableOutcome,
    memory_budget::SMALL_BYTES,
    operation::{Operation, Outcome, Value},
    row::{Row, StoredValue},
    store::{BAD_CONTENT_TYPE, Wanted, WantedValue, error::UnreadableRow},
};

/// How often a value is loaded that larger ones replace.
const LOADS: usize = 8;

/// How new a row must be that is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Freshness {
    /// What the database shows.
    Visible,
    /// This version or a later one, which a replica may have.
    Version(u64),
    /// One that survives a crash, and a failover to a synchronous standby. Something may be decided on it.
    Durable,
}

impl Session {
    /// Loads a resource's row without a claim.
    pub(super) async fn load(
        &self,
        resource: &ResourceName,
        value: WantedValue,
        freshness: Freshness,
    ) -> Result<Row, Problem> {
        let wanted = Wanted { resource, value };
        let row = match freshness {
            Freshness::Visible => self.store.read(wanted).await,
            Freshness::Version(version) => self.store.read_version(wanted, version).await,
            Freshness::Durable => self.store.read_durable(wanted).await,
        };
        let row = row.map_err(|error| self.unreachable(&error))?;
        match freshness {
            Freshness::Version(at_least) if row.version < at_least => {
                Err(Problem::version_not_reached(resource, row.version, at_least))
            }
            _ => Ok(row),
        }
    }

    /// Loads a resource's row without a claim. If its version is sent, loads its value, too, which then keeps
    /// memory for the answer.
    pub(super) async fn load_value(
        &self,
        resource: &ResourceName,
        freshness: Freshness,
        is_sent: impl Fn(u64) -> bool,
    ) -> Result<Row, Problem> {
        let none = UnavailableOutcome::None;
        // 1. Load a small value at once. The description of a large one is enough if it is not sent.
        let mut row = self.load(resource, WantedValue::AtMost(SMALL_BYTES), freshness).await?;
        for _ in 0..LOADS {
            if !is_sent(row.version) {
                return Ok(row);
            }
            let described = match &mut row.value {
                StoredValue::NotLoaded(described) => described,
                StoredValue::Present(value) => {
                    self.keep_memory(value, none)?;
                    return Ok(row);
                }
                StoredValue::Absent | StoredValue::Unknown => return Ok(row),
            };

            // 2. Load a large one, unless a larger one has replaced it.
            let memory;
            (row, memory) = self.load_large(resource, described.size, freshness).await?;
            if let StoredValue::Present(value) = &mut row.value {
                value.keep_memory(memory);
                return Ok(row);
            }
        }
        Err(Problem::nothing_done("larger values replaced it again and again".to_owned()))
    }

    /// Claims a resource, and reads its value as of the moment of the claim, or of a later one while no
    /// other claim was accepted. If its version is sent, the value then keeps memory for the answer.
    pub(super) async fn fenced_read(
        &self,
        operation: Operation,
        is_sent: impl Fn(u64) -> bool,
    ) -> Result<(u64, StoredValue), Problem> {
        // 1. Claim, and read a small value in the same step. The path of writes loads no larger one.
        let unknown = UnavailableOutcome::Unknown;
        let mut outcome = self.decide(operation.clone()).await?;
        for _ in 0..LOADS {
            let Outcome::Read { version, mut value } = outcome else {
                unreachable!("{outcome:?} is not the outcome of a read")
            };
            let described = match &mut value {
                _ if !is_sent(version) => return Ok((version, value)),
                StoredValue::NotLoaded(described) => described,
                StoredValue::Present(present) => {
                    self.keep_memory(present, unknown)?;
                    return Ok((version, value));
                }
                StoredValue::Absent => return Ok((version, value)),
                StoredValue::Unknown => unreachable!("the row of a read is loaded"),
            };

            // 2. Load a large one over a connection of its own. From here on, the claim has happened.
            let resource = &operation.resource;
            let loaded = self.load_large(resource, described.size, Freshness::Durable).await;
            let (mut row, memory) = loaded.map_err(Problem::after_a_change)?;

            // 3. While the version is the same, this is the value of the moment of the claim, whoever has
            //    claimed since.
            if let StoredValue::Present(present) = &mut row.value
                && (row.version, &present.describe()) == (version, &*described)
            {
                present.keep_memory(memory);
                return Ok((version, row.value));
            }

            // 4. Otherwise, somebody has written in between. If the fence is still this claim's, the row
            //    shows what can be read under it now.
            let mut claimed = row.clone();
            let decided = claimed.apply(&operation, self.config.enforcement);
            if claimed != row || decided.outcome.is_rejection() {
                return Err(Problem::overtaken(resource));
            }
            outcome = decided.outcome;
        }
        Err(Problem::overtaken(&operation.resource))
    }

    /// Loads the row with a large value of this size, in a turn of the client. Takes memory before: nobody
    /// waits who has some.
    async fn load_large(
        &self,
        resource: &ResourceName,
        size: u64,
        freshness: Freshness,
    ) -> Result<(Row, OwnedSemaphorePermit), Problem> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let turn = self.turns.take(&self.client).await;
        let _turn = turn.ok_or_else(|| {
            Problem::nothing_done("too many large values are loaded for this client".to_owned())
        })?;
        let memory = self.memory_for_answer(size, UnavailableOutcome::None)?;
        Ok((self.load(resource, WantedValue::AtMost(size), freshness).await?, memory))
    }

    /// The problem of a value that was not written by a server.
    pub(super) fn unreadable_type(&self, resource: &ResourceName) -> Problem {
        self.unreachable(&UnreadableRow::new(resource.as_str(), BAD_CONTENT_TYPE))
    }

    /// Makes a value keep memory, because a client may read it slowly.
    fn keep_memory(&self, value: &mut Value, outcome: UnavailableOutcome) -> Result<(), Problem> {
        let memory = self.memory_for_answer(value.content.bytes.len(), outcome)?;
        value.keep_memory(memory);
        Ok(())
    }
}
