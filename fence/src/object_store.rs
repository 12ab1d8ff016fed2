//! The fence in object storage: S3, Google Cloud Storage, Azure, and every other store of the crate
//! `object_store` that has conditional writes.
//!
//! ```
//! use std::sync::Arc;
//!
//! use fence::{
//!     Fence,
//!     object_store::{Outcome, Registers},
//! };
//! use object_store::{memory::InMemory, path::Path};
//!
//! # async fn withdraw(offered: &Fence) -> Result<(), Box<dyn std::error::Error>> {
//! let registers = Registers::new(Arc::new(InMemory::new()), Path::from("accounts"));
//! let mut alice = registers.register(&"alice".parse()?);
//! let balance = match alice.claim(offered).await? {
//!     Outcome::Applied(content) => content.value,
//!     Outcome::Rejected(rejection) => return Err(rejection.into()),
//!     Outcome::Unknown(unknown) => return Err(unknown.into()),
//! };
//! // …
//! match alice.write(offered, "70".into()).await? {
//!     Outcome::Applied(_) => {}
//!     Outcome::Rejected(rejection) => return Err(rejection.into()),
//!     // The write may have been applied, or may still be: claim with a higher token, and look.
//!     Outcome::Unknown(unknown) => return Err(unknown.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # One register for each resource
//! Fence and value are one object, which has a version and the random id of the write that made it.
//! Every change replaces the object on the condition that it still is as it was read (`If-Match`). So
//! decision and change are one step. A token in the object's metadata would be no fence: the ETag of
//! S3 follows the content alone, so a claim would leave it as it was.
//!
//! # What the store must do
//! Conditional writes must be honoured and atomic: otherwise there is no fence. A read must return the
//! newest object: otherwise registers seem to be lost. No lifecycle rule may delete anything below the
//! prefix: a register that was deleted is a fence that was forgotten. Anyone who can read the bucket
//! can read the holders.
//!
//! # Unknown outcomes
//! An answer may be lost, and the crate `object_store` repeats requests by itself: a client's own write
//! then comes back as a failed condition. So after every answer but success, the register is read
//! back ([`Outcome`] has the rules). An unknown outcome is never reported as a rejection.
//!
//! A write that the store has rejected each time it was sent (409, 429, 403) has changed nothing, which is an
//! error and no unknown outcome. This is known only if the store's client repeats nothing by itself, because
//! it returns the last answer only. So make it with `RetryConfig { max_retries: 0, .. }`, or give the writes
//! such a client ([`Registers::with_writer`]). A register sends a write up to four times itself. It waits
//! for more than a second after 429, because some stores take one write a second for each key.
//!
//! # A program that decides by itself
//! A server that decides many requests at once, or keeps more than a value, takes a
//! [snapshot](Register::snapshot) of a register and [replaces](Register::replace) it, attributes included.
//! The condition is the same. Such a register is that program's alone: claims, writes and deletes of
//! others fail.
//!
//! # Large values
//! A value above 16 KiB is an object of its own, which is never changed. Its name has the version of
//! the register that its writer had read. Objects that no register refers to any more stay until
//! [`Register::collect`] deletes them.
//!
//! # Names of objects
//! The register of a resource is `PREFIX/NAME/fence.register`. In `NAME`, all bytes except letters,
//! digits, `-`, `.` and `_` are percent-encoded, slashes too. If that has more than 200 bytes, `NAME`
//! is `~/` and the resource's name in Base64 for URLs, with a slash after every 200 characters. So the
//! longest name makes a key of fewer than 800 bytes below the prefix. S3 permits 1024.

mod failure;
mod list;
mod outcome;
mod paths;
mod read_back;
mod register;
mod state;

use std::sync::Arc;

use ::object_store::{ObjectStore, path::Path};

pub use self::{
    failure::Failure,
    outcome::{Content, Outcome, RegisterError, UnknownOutcome},
    register::{LatestSeen, Leftover, NewValue, Register, Replaced, Replacement, Snapshot},
};
use crate::name::ResourceName;

/// The registers of all resources below a prefix of a store.
#[derive(Clone, Debug)]
pub struct Registers {
    store: Arc<dyn ObjectStore>,
    /// Sends the writes on conditions.
    writer: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Registers {
    /// Creates a handle. Nothing is sent.
    ///
    /// No lifecycle rule may apply to the prefix.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self { writer: store.clone(), store, prefix }
    }

    /// Sends the writes on conditions through this client of the same store. It should repeat no request by
    /// itself (`max_retries: 0`): the register does that, and waits as long as the answer calls for.
    ///
    /// After a repetition, the client of a store returns the last answer only. A rejection may then hide an
    /// earlier attempt that was applied, so the outcome is unknown.
    #[must_use]
    pub fn with_writer(self, writer: Arc<dyn ObjectStore>) -> Self {
        Self { writer, ..self }
    }

    /// Returns a handle for the register of a resource. Nothing is sent.
    ///
    /// A handle remembers the register for a second. So a client that holds a lock keeps one handle: if
    /// its next write follows soon, it is a single request.
    pub fn register(&self, resource: &ResourceName) -> Register {
        Register::new(self, resource)
    }
}
