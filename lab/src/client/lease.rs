//! A lock of the lock client.

use std::time::Duration;

use anyhow::Context;
use fence::{Fence, ResourceName};
use lock_client::{
    AcquireError, Lease, LockServiceError, Locks, Released, Ttl,
    backend::{Backend, BackendError},
};

use super::{
    command::{Order, Renewal, Terms, millis},
    report::{Report, Reports},
};
use crate::record::EventKind;

/// A lock of the lock client, and the lease on it.
pub(super) struct LeaseLock {
    locks: Locks,
    resource: ResourceName,
    /// The number of nodes that keep the lock together.
    nodes: usize,
    held: Option<Held>,
}

struct Held {
    lease: Lease,
    /// The token and holder as of the last check.
    fence: Fence,
}

impl LeaseLock {
    pub(super) fn new(backend: impl Backend, nodes: usize, resource: &ResourceName) -> Self {
        Self { locks: Locks::new(backend), resource: resource.clone(), nodes, held: None }
    }

    /// The same lock for another client, over the same connections.
    pub(super) fn sharing_connections(&self) -> Self {
        let (locks, resource) = (self.locks.clone(), self.resource.clone());
        Self { locks, resource, nodes: self.nodes, held: None }
    }

    pub(super) async fn acquire(
        &mut self,
        terms: Terms,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        let wait = Duration::from_millis(terms.wait_ms);
        let asked = lock_client_terms(terms)?;
        // A client that reports tries once without waiting, so that it can report that it waits.
        let answer = match reports {
            Reports::Printed(_) => {
                match self.locks.acquire(&self.resource, asked.no_wait()).await {
                    Err(AcquireError::Contended { .. }) if !wait.is_zero() => {
                        reports.add(EventKind::Busy);
                        self.locks.acquire(&self.resource, asked.wait(wait)).await
                    }
                    answer => answer,
                }
            }
            Reports::Counted(_) => self.locks.acquire(&self.resource, asked.wait(wait)).await,
        };
        match answer {
            Ok(lease) => {
                let fence = lease.fence()?;
                // A lease that is renewed has no end that is known now.
                let is_limited = terms.renewal == Renewal::Off;
                let acquired = EventKind::Acquired {
                    ttl_ms: is_limited.then_some(terms.ttl_ms),
                    remaining_ms: is_limited.then(|| millis(lease.remaining())),
                    resource: Some(self.resource.to_string()),
                    holder: Some(fence.holder.redacted()),
                    beside: None,
                };
                reports.add((fence.token, acquired));
                self.held = Some(Held { lease, fence });
            }
            Err(AcquireError::Contended { .. }) => {
                reports.add(EventKind::GaveUp { waited_ms: terms.wait_ms });
            }
            Err(AcquireError::Unavailable { .. }) if self.nodes > 1 => {
                reports.add(EventKind::NoMajority);
            }
            // A crowd is not counted without a client's answer.
            Err(AcquireError::Unavailable { .. }) if matches!(reports, Reports::Printed(_)) => {
                reports.add(EventKind::Unanswered);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Checks the lease, and returns how long it is valid, unless it is over.
    pub(super) fn check(&mut self) -> anyhow::Result<Report> {
        let held = self.held.as_mut().context("there is no lease")?;
        let Ok(fence) = held.lease.fence() else { return Ok(EventKind::LeaseOver.into()) };
        held.fence = fence;
        let remaining_ms = millis(held.lease.remaining());
        Ok((held.fence.token, EventKind::LeaseChecked { remaining_ms }).into())
    }

    pub(super) async fn release(&mut self) -> anyhow::Result<EventKind> {
        let held = self.held.take().context("there is no lease")?;
        Ok(match held.lease.release().await {
            Ok(Released::Released) => EventKind::Released,
            Ok(Released::NotHeld | Released::StillHeld) => EventKind::LeaseLost,
            Err(LockServiceError { source: BackendError::Unavailable(_), .. }) => {
                EventKind::Unanswered
            }
            Err(error) => return Err(error.into()),
        })
    }

    pub(super) fn lease(&self) -> anyhow::Result<&Lease> {
        Ok(&self.held.as_ref().context("there is no lease")?.lease)
    }

    pub(super) fn fence(&self) -> anyhow::Result<&Fence> {
        Ok(&self.held.as_ref().context("there is no lease")?.fence)
    }
}

fn lock_client_terms(terms: Terms) -> anyhow::Result<lock_client::Terms> {
    let asked = lock_client::Terms::new(Ttl::new(Duration::from_millis(terms.ttl_ms))?);
    let asked = match terms.renewal {
        Renewal::Off => asked.without_renewal(),
        Renewal::Automatic => asked,
    };
    Ok(match terms.order {
        Order::Unordered => asked,
        Order::Fair => asked.fair(),
    })
}
