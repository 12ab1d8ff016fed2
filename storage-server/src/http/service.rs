//! What all requests share.

use std::{sync::Arc, time::Instant};

use axum::http::{Extensions, HeaderMap};
use bytes::Bytes;
use fence::Token;
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
    committer::{job::UnavailableOutcome, queue::Queue},
    config::Config,
    cut_offs::{CutOff, CutOffs},
    memory_budget::{MemoryBudget, with_memory},
    metrics::Metrics,
    prober::Prober,
    rate_limit::{Client, RateLimit},
    store::Store,
};

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
}
