//! What a datastore must offer to be checked.

use async_trait::async_trait;

use crate::{name::ResourceName, rejection::Rejection, rule::Fence};

/// A datastore with a fence. It must be empty at first.
#[async_trait]
pub trait Subject: Send {
    /// Claims a resource.
    async fn claim(&mut self, resource: &ResourceName, offered: &Fence) -> Answer;

    /// Sets the resource's value.
    async fn write(&mut self, resource: &ResourceName, offered: &Fence, value: &str) -> Answer;

    /// Removes the resource's value, if there is one.
    async fn delete(&mut self, resource: &ResourceName, offered: &Fence) -> Answer;

    /// The resource's value.
    async fn read(&mut self, resource: &ResourceName) -> Result<Option<String>, Failure>;
}

/// A datastore's answer to an offer, or why it didn't answer.
pub type Answer = Result<Outcome, Failure>;

/// Whether a datastore accepted an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It accepted the offer.
    Accepted,
    /// It rejected the offer.
    Rejected(Rejection),
}

/// Why a datastore didn't answer.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
