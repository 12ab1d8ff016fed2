//! What the handlers share: the way to the committer and to the store.

use std::{error::Error, sync::Arc, time::Instant};

use axum::http::{Extensions, HeaderMap};
use bytes::Bytes;
use fence::{Rejection, ResourceName, Token};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::{
    caller::credentials,
    observe::Progress,
    problem::Problem,
    turns::{Turns, client},
};
use crate::{
    access::{Caller, identity::Permission},
    audit::Audit,
    causes::with_causes,
    committer::{
        job::{Unavailable, UnavailableOutcome},
        queue::Queue,
    },
    config::{Config, Enforcement},
    cut_offs::{CutOff, CutOffs},
    memory_budget::{MemoryBudget, SMALL_BYTES, with_memory},
    metrics::Metrics,
    operation::{Decided, Operation, Outcome, Value},
    prober::Prober,
    rate_limit::{Client, RateLimit},
    row::{Row, StoredValue},
    store::{BAD_CONTENT_TYPE, Store, Wanted, WantedValue, error::UnreadableRow},
    transaction::{DecidedTransaction, Transaction},
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

/// The state that all handlers share.
pub(super) struct Service {
    /// Where operations are queued.
    pub(super) queue: Queue,
    /// Where plain reads go.
    pub(super) store: Arc<dyn Store>,
    /// Probes the database.
    pub(super) prober: Prober,
    /// How to treat requests.
    pub(super) config: Config,
    /// The memory for bodies and answers.
    pub(super) budget: Arc<MemoryBudget>,
    /// How often each client may send requests, if that is limited.
    pub(super) rate_limit: Option<RateLimit<Client>>,
    /// Where cut-offs are counted.
    pub(super) cut_offs: Arc<CutOffs>,
    /// Where requests are counted.
    pub(super) metrics: Arc<Metrics>,
    /// Where rejections and the actions of operators are recorded.
    pub(super) audit: Audit,
    /// Whose turn it is to load a large value.
    pub(super) turns: Turns,
    /// Cancelled once the server begins to stop.
    pub(super) draining: CancellationToken,
}

impl Service {
    /// Identifies the client that sent this head; `None` if it has to prove who it is.
    pub(super) fn identify(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Caller> {
        let caller =
            self.config.access.identify(credentials(headers, extensions), extensions.get())?;
        if let Some(progress) = extensions.get::<Progress>() {
            progress.set_caller(caller.clone());
        }
        Some(caller)
    }

    /// Counts a request with these extensions, whose client is the caller if it is known. Rejects the
    /// request if the client sends too many.
    pub(super) fn admit(
        &self,
        caller: Option<&Caller>,
        extensions: &Extensions,
    ) -> Result<(), Problem> {
        let Some(rate_limit) = &self.rate_limit else { return Ok(()) };
        if rate_limit.admit(client(caller, extensions), Instant::now()) {
            Ok(())
        } else {
            Err(Problem::too_many_requests())
        }
    }

    /// Returns the highest token with which the caller may act on the resource or prefix. If it may
    /// not act on it at all, returns the problem.
    pub(super) fn permit(
        &self,
        caller: &Caller,
        permission: Permission,
        name: &str,
    ) -> Result<Token, Problem> {
        let ceiling = caller.ceiling(permission, name, self.config.token_ceiling);
        ceiling.ok_or_else(|| Problem::forbidden(caller, permission, name))
    }

    /// Queues an operation and waits for its decision. Returns a rejection as a problem, and logs
    /// an operation that would have been rejected if the server enforced.
    pub(super) async fn decide(&self, operation: Operation) -> Result<Outcome, Problem> {
        let resource = operation.resource.clone();
        match self.submit(operation).await? {
            Outcome::Rejected(rejection) => Err(Problem::rejected(&resource, rejection)),
            Outcome::TokenTooHigh { token, ceiling } => {
                Err(Problem::token_too_high(&resource, token, ceiling))
            }
            Outcome::SequenceReused { sequence } => {
                Err(Problem::sequence_reused(&resource, sequence))
            }
            Outcome::SequenceTooOld { sequence, highest, may_be_forgotten } => {
                let outcome = match may_be_forgotten {
                    true => UnavailableOutcome::Unknown,
                    false => UnavailableOutcome::None,
                };
                Err(Problem::sequence_too_old(&resource, sequence, highest, outcome))
            }
            outcome => Ok(outcome),
        }
    }

    /// Queues an operation and waits for its decision, which may be a rejection. Logs an operation that
    /// would have been rejected if the server enforced.
    pub(super) async fn submit(&self, operation: Operation) -> Result<Outcome, Problem> {
        let (resource, action) = (operation.resource.clone(), operation.action.name());
        let token = operation.offered.as_ref().map(|offered| offered.token);
        let Decided { outcome, overruled } =
            self.queue.submit(operation).await.map_err(Problem::unavailable)?;
        if !outcome.is_rejection() {
            self.report(&resource, action, token, overruled);
        }
        Ok(outcome)
    }

    /// Queues a transaction and waits for its decision. Logs the writes that would have been
    /// rejected if the server enforced.
    pub(super) async fn decide_transaction(
        &self,
        transaction: Arc<Transaction>,
    ) -> Result<DecidedTransaction, Problem> {
        let decided = self.queue.submit_transaction(transaction.clone()).await;
        let decided = decided.map_err(Problem::unavailable)?;
        if !decided.is_rejection() {
            for (write, decided) in transaction.writes.iter().zip(&decided.writes) {
                let token = write.offered.as_ref().map(|offered| offered.token);
                self.report(&write.resource, write.action.name(), token, decided.overruled);
            }
        }
        Ok(decided)
    }

    /// Logs what was accepted and would have been rejected, in the mode that reports it.
    fn report(
        &self,
        resource: &ResourceName,
        action: &str,
        token: Option<Token>,
        overruled: Option<Rejection>,
    ) {
        if self.config.enforcement != Enforcement::Report {
            return;
        }
        if token.is_none() {
            tracing::warn!(%resource, action, "accepted a request that has no token");
        }
        if let Some(rejection) = overruled {
            tracing::warn!(
                %resource,
                action,
                token = %rejection.token,
                highest_token = %rejection.highest_token,
                reason = rejection.reason.slug(),
                "accepted what would be rejected"
            );
        }
    }

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
        client: &Client,
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
            (row, memory) = self.load_large(resource, described.size, freshness, client).await?;
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
        client: &Client,
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
            let loaded =
                self.load_large(resource, described.size, Freshness::Durable, client).await;
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
        client: &Client,
    ) -> Result<(Row, OwnedSemaphorePermit), Problem> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let turn = self.turns.take(client).await;
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

    /// Makes an answer keep memory, because a client may read it slowly. `outcome` is what has happened
    /// to the operation by now.
    pub(super) fn answer_with_memory(
        &self,
        bytes: Bytes,
        outcome: UnavailableOutcome,
    ) -> Result<Bytes, Problem> {
        let memory = self.memory_for_answer(bytes.len(), outcome)?;
        Ok(with_memory(bytes, memory))
    }

    /// Takes memory for an answer of at most so many bytes.
    pub(super) fn memory_for_answer(
        &self,
        bytes: usize,
        outcome: UnavailableOutcome,
    ) -> Result<OwnedSemaphorePermit, Problem> {
        self.budget.answers(bytes).try_take(bytes).ok_or_else(|| {
            self.cut_offs.count(CutOff::OverBudget);
            Problem::over_budget(outcome)
        })
    }

    /// Logs why nothing was read, and makes the problem for the client.
    pub(super) fn unreachable(&self, error: &(dyn Error + 'static)) -> Problem {
        let reason = with_causes(error);
        tracing::error!(database = self.store.database(), "{reason}");
        Problem::unavailable(Unavailable { outcome: UnavailableOutcome::None, reason })
    }
}
