//! What the handlers share: the way to the committer and to the store.

use std::sync::Arc;

use fence::ResourceName;

use super::problem::Problem;
use crate::{
    causes::with_causes,
    committer::{
        job::{Unavailable, UnavailableOutcome},
        queue::Queue,
    },
    config::{Config, Enforcement},
    operation::{Decided, Operation, Outcome},
    row::Row,
    store::{Store, Wanted, WantedValue, error::Unreachable},
};

/// The state that all handlers share.
pub(super) struct Service {
    /// Where operations are queued.
    pub(super) queue: Queue,
    /// Where plain reads go.
    pub(super) store: Arc<dyn Store>,
    /// How to treat requests.
    pub(super) config: Config,
}

impl Service {
    /// Queues an operation and waits for its decision. Returns a rejection as a problem, and logs
    /// an operation that would have been rejected if the server enforced.
    pub(super) async fn decide(&self, operation: Operation) -> Result<Outcome, Problem> {
        let (resource, action) = (operation.resource.clone(), operation.action.name());
        let Decided { outcome, overruled } =
            self.queue.submit(operation).await.map_err(Problem::unavailable)?;
        if let Outcome::Refused(refusal) = outcome {
            return Err(Problem::refused(&resource, refusal));
        }
        if self.config.enforcement == Enforcement::Report
            && let Some(refusal) = overruled
        {
            tracing::warn!(
                %resource,
                action,
                token = %refusal.token,
                highest_token = %refusal.highest_token,
                reason = refusal.reason.slug(),
                "accepted what would be refused"
            );
        }
        Ok(outcome)
    }

    /// Loads a resource's row without a claim.
    pub(super) async fn load(
        &self,
        resource: &ResourceName,
        value: WantedValue,
    ) -> Result<Row, Problem> {
        let wanted = Wanted { resource, value };
        let rows = self.store.load(&[wanted]).await;
        let mut rows = rows.map_err(|error| self.unreachable(&error))?;
        Ok(rows.pop().expect("a store loads as many rows as are wanted"))
    }

    /// Logs that the database did not answer, and makes the problem for the client.
    pub(super) fn unreachable(&self, error: &Unreachable) -> Problem {
        let reason = with_causes(error);
        tracing::error!(database = self.store.database(), "{reason}");
        Problem::unavailable(Unavailable { outcome: UnavailableOutcome::None, reason })
    }
}
