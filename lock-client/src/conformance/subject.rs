//! What the suite needs of a lock service.

use crate::{Ttl, backend::Backend};

/// Why a lock service could not be paused, stopped or started.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The suite could not do what it needs for a check.
#[derive(Debug, thiserror::Error)]
#[error("no promise was broken, but the service could not be disturbed")]
struct NotDisturbed(#[source] Failure);

pub(super) fn disturbed(outcome: Result<(), Failure>) -> Result<(), Failure> {
    outcome.map_err(|failure| NotDisturbed(failure).into())
}

/// A lock service that nobody else uses, and the means to disturb it.
pub trait Subject: Send {
    /// A client of the service.
    type Backend: Backend;

    /// Whether waiters may queue in a fair order.
    const IS_FAIR: bool;
    /// Whether the backend itself undoes each attempt that it does not report as granted. Then a
    /// repetition by the same holder need not return the same grant.
    const UNDOES_BY_ITSELF: bool = false;

    /// Makes a new client, with connections of its own.
    fn connect(&self) -> Self::Backend;

    /// The shortest ttl of the service.
    fn shortest_ttl(&self) -> Ttl;

    /// Pauses the service: it keeps its connections, and answers nothing.
    fn pause(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends the pause. The service may carry out what arrived meanwhile.
    fn resume(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Kills the service. Connections to it are rejected from then on.
    fn stop(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Starts the service again, with what it has stored. Returns when it can be used.
    fn start(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}
