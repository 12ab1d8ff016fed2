//! A request of a known client, and its way to the committer.

use std::{convert::Infallible, error::Error, ops::Deref, sync::Arc};

use axum::{extract::FromRequestParts, http::request::Parts};
use fence::{Rejection, ResourceName, Token};

use super::{problem::Problem, service::Service, turns::client};
use crate::{
    access::Caller,
    causes::with_causes,
    committer::job::{Unavailable, UnavailableOutcome},
    config::Enforcement,
    operation::{Decided, Operation, Outcome},
    rate_limit::Client,
    transaction::{DecidedTransaction, Transaction},
};

/// A request whose client is known.
pub(super) struct Session {
    service: Arc<Service>,
    /// Who has sent it.
    pub(super) caller: Caller,
    /// For whom it counts.
    pub(super) client: Client,
}

impl Deref for Session {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

impl FromRequestParts<Arc<Service>> for Session {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.expect("the routes that have a session identify the client first");
        let client = client(Some(&caller), &parts.extensions);
        Ok(Self { service: service.clone(), caller, client })
    }
}

impl Session {
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
        let Decided { outcome, overruled } = self
            .queue
            .submit(operation)
            .await
            .map_err(|unavailable| self.unavailable(unavailable))?;
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
        let decided = decided.map_err(|unavailable| self.unavailable(unavailable))?;
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

    fn unavailable(&self, unavailable: Unavailable) -> Problem {
        Problem::unavailable(unavailable, &self.caller)
    }

    /// Logs why nothing was read, and makes the problem for the client.
    pub(super) fn unreachable(&self, error: &(dyn Error + 'static)) -> Problem {
        let reason = with_causes(error);
        tracing::error!(database = self.store.database(), "{reason}");
        self.unavailable(Unavailable { outcome: UnavailableOutcome::None, reason })
    }
}
