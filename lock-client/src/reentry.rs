//! Re-entry: acquiring a lock from within a lease.

use fence::ResourceName;

use crate::{acquisition::Acquisition, error::AcquireError, lease::Lease, terms::Terms};

impl Lease {
    /// Acquires a lock from within this lease. The lease's own name is re-entry: it returns a clone
    /// with the same token. Another name is acquired as by
    /// [`Locks::acquire`](crate::Locks::acquire).
    ///
    /// # Errors
    /// [`AcquireError::Lost`] if it is the lease's own name and the lease is lost. For another
    /// name, see [`Locks::acquire`](crate::Locks::acquire).
    ///
    /// # Cancellation safety
    /// As [`Locks::acquire`](crate::Locks::acquire).
    pub async fn acquire(
        &self,
        name: &ResourceName,
        terms: impl Into<Terms>,
    ) -> Result<Self, AcquireError> {
        if name == self.name() {
            self.token()?;
            Ok(self.clone())
        } else {
            Acquisition::new(self.service(), name, terms.into()).run().await
        }
    }
}
