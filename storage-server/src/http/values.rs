//! How rows and their values are read: a large value over a connection of its own, with memory, and only if it
//! is sent.

use std::panic::resume_unwind;

use fence::ResourceName;
use tokio::time::Instant;

use super::{problem::Problem, session::Session, turns::Turns};
use crate::{
    committer::job::UnavailableOutcome,
    cut_offs::CutOff,
    memory_budget::SMALL_BYTES,
    operation::{Operation, Outcome, Value},
    row::{Row, StoredValue},
    store::{
        BAD_CONTENT_TYPE, Store, Wanted, WantedValue,
        error::{ReadError, UnreadableRow},
    },
};

/// How many loads a read makes while larger values replace the one that it loads.
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
        let row = read(&*self.store, Wanted { resource, value }, freshness).await;
        self.checked(resource, row, freshness)
    }

    fn checked(
        &self,
        resource: &ResourceName,
        row: Result<Row, ReadError>,
        freshness: Freshness,
    ) -> Result<Row, Problem> {
        let row = row.map_err(|error| self.unreachable(&error))?;
        match freshness {
            Freshness::Version(at_least) if row.version < at_least => {
                Err(Problem::version_not_reached(resource, row.version, at_least))
            }
            _ => Ok(row),
        }
    }

    /// Loads a resource's row without a claim, and its value if this version of it is sent. The value then
    /// keeps memory for the answer.
    pub(super) async fn load_value(
        &self,
        resource: &ResourceName,
        freshness: Freshness,
        is_sent: impl Fn(u64) -> bool,
    ) -> Result<Row, Problem> {
        // 1. Load a small value at once. The description of a large one is enough if it is not sent.
        let mut row = self.load(resource, WantedValue::AtMost(SMALL_BYTES), freshness).await?;
        if is_sent(row.version)
            && let StoredValue::Present(value) = &mut row.value
        {
            self.keep_memory(value)?;
            return Ok(row);
        }

        // 2. Load a large one, again if a larger one has replaced it meanwhile.
        let (mut loads, deadline) = (0..LOADS, Turns::deadline());
        while is_sent(row.version)
            && let StoredValue::NotLoaded(described) = &row.value
        {
            if loads.next().is_none() {
                let reason = "larger values replaced it again and again";
                return Err(Problem::nothing_done(reason.to_owned()));
            }
            row = self.load_large(resource, described.size, freshness, deadline).await?;
        }
        Ok(row)
    }

    /// Claims a resource, and reads its value as of the moment of the claim, or of a later one while no
    /// other claim was accepted. If its version is sent, the value then keeps memory for the answer.
    pub(super) async fn fenced_read(
        &self,
        operation: Operation,
        is_sent: impl Fn(u64) -> bool,
    ) -> Result<(u64, StoredValue), Problem> {
        // 1. Claim, and read a small value in the same step. The path of writes loads no larger one.
        let resource = &operation.resource;
        let (mut version, mut value) = read_outcome(self.decide(operation.clone()).await?);
        if is_sent(version)
            && let StoredValue::Present(present) = &mut value
        {
            self.keep_memory(present).map_err(Problem::after_the_claim)?;
            return Ok((version, value));
        }
        let (mut loads, deadline) = (0..LOADS, Turns::deadline());
        while is_sent(version)
            && let StoredValue::NotLoaded(described) = &value
        {
            if loads.next().is_none() {
                return Err(Problem::overtaken(resource));
            }

            // 2. Load a large one over a connection of its own.
            let size = described.size;
            let loaded = self.load_large(resource, size, Freshness::Durable, deadline).await;
            let mut row = loaded.map_err(Problem::after_the_claim)?;

            // 3. While the version is the same, this is the value of the moment of the claim, whoever has
            //    claimed since.
            if let StoredValue::Present(present) = &row.value
                && (row.version, &present.describe()) == (version, described)
            {
                return Ok((version, row.value));
            }

            // 4. Otherwise, somebody has written in between. If the fence is still this claim's, the row
            //    shows what can be read under it now.
            let before = (row.fence.clone(), row.answers.clone());
            let decided = row.apply(&operation, self.config.enforcement);
            if (row.fence, row.answers) != before || decided.outcome.is_rejection() {
                return Err(Problem::overtaken(resource));
            }
            (version, value) = read_outcome(decided.outcome);
        }
        Ok((version, value))
    }

    /// Loads the row with a large value of this size, which keeps memory for the answer. Each step has what
    /// the next one waits for: first the client's turn, then memory without a wait, then a connection.
    ///
    /// # Cancellation safety
    /// The load goes on without its client, with the turn and the memory that it takes.
    async fn load_large(
        &self,
        resource: &ResourceName,
        size: u64,
        freshness: Freshness,
        deadline: Instant,
    ) -> Result<Row, Problem> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some(turn) = self.turns.take(&self.client, freshness, deadline).await else {
            self.cut_offs.count(CutOff::NoTurn);
            let reason = "other large values were loaded for too long";
            return Err(Problem::nothing_done(reason.to_owned()));
        };
        let memory = self.memory_for_answer(size, UnavailableOutcome::None)?;
        let (store, name) = (self.store.clone(), resource.clone());
        let load = async move {
            let _turn = turn;
            let wanted = Wanted { resource: &name, value: WantedValue::AtMost(size) };
            let mut row = read(&*store, wanted, freshness).await?;
            if let StoredValue::Present(value) = &mut row.value {
                value.keep_memory(memory);
            }
            Ok(row)
        };
        let row =
            tokio::spawn(load).await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        self.checked(resource, row, freshness)
    }

    /// The problem of a value that was not written by a server.
    pub(super) fn unreadable_type(&self, resource: &ResourceName) -> Problem {
        self.unreachable(&UnreadableRow::new(resource.as_str(), BAD_CONTENT_TYPE))
    }

    /// Makes a value keep memory, because a client may read it slowly.
    fn keep_memory(&self, value: &mut Value) -> Result<(), Problem> {
        let bytes = value.content.bytes.len();
        value.keep_memory(self.memory_for_answer(bytes, UnavailableOutcome::None)?);
        Ok(())
    }
}

async fn read(
    store: &dyn Store,
    wanted: Wanted<'_>,
    freshness: Freshness,
) -> Result<Row, ReadError> {
    match freshness {
        Freshness::Visible => store.read(wanted).await,
        Freshness::Version(version) => store.read_version(wanted, version).await,
        Freshness::Durable => store.read_durable(wanted).await,
    }
}

fn read_outcome(outcome: Outcome) -> (u64, StoredValue) {
    match outcome {
        Outcome::Read { version, value } => (version, value),
        other => unreachable!("{other:?} is not the outcome of a read"),
    }
}
