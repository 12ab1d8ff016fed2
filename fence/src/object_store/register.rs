//! The register of one resource.

mod collect;
mod latest;
mod load;
mod replace;
mod send;
mod snapshot;

use std::{sync::Arc, time::Duration};

use ::object_store::{Error, ObjectStore, ObjectStoreExt};
use bytes::Bytes;

use self::send::Sent;
pub use self::{
    latest::LatestSeen,
    replace::{Leftover, NewValue, Replaced, Replacement},
    snapshot::Snapshot,
};
use super::{
    Registers,
    outcome::{Content, Outcome, RegisterError, UnknownOutcome},
    paths::Paths,
    state::{State, Value},
};
use crate::{
    name::ResourceName,
    rejection::{Rejection, RejectionReason},
    rule::{Decision, Fence, decide},
};

/// The longest value that is part of its register, in bytes. Every claim writes the register again.
const LONGEST_INLINE_VALUE: usize = 16 * 1024;
/// A handle that has remembered the register for longer than this reads it before it writes. So a client
/// that was paused is rejected, instead of being left with an unknown outcome. This clock stands still
/// while the whole machine is suspended.
const MEMORY: Duration = Duration::from_secs(1);
/// How often a change is tried while other clients change the register first.
const ATTEMPTS: usize = 64;

/// The fence and the value of one resource, in one object.
///
/// For a second, it remembers the register as it last saw it. The condition of each change proves that
/// it still is so. A rejection never comes from what it remembers: the register is read first.
#[derive(Debug)]
pub struct Register {
    store: Arc<dyn ObjectStore>,
    /// Sends the writes on conditions.
    writer: Arc<dyn ObjectStore>,
    resource: ResourceName,
    paths: Paths,
    /// The register as it was last seen, unless a change is under way or has an unknown outcome.
    known: Option<Snapshot>,
    /// The latest state seen. A register that does not follow it was lost.
    latest: Option<LatestSeen>,
    /// Whether the last change that was sent may have been applied, or may still be.
    is_in_doubt: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Claim,
    Write(Bytes),
    Delete,
}

/// The outcome of one attempt at a change.
enum Attempt {
    Applied(Content),
    Rejected(Rejection),
    /// It was not applied, and never will be.
    Again,
    Unknown(Error),
}

impl Register {
    pub(super) fn new(registers: &Registers, resource: &ResourceName) -> Self {
        let Registers { store, writer, prefix } = registers.clone();
        let paths = Paths::new(&prefix, resource);
        let (known, latest) = (None, None);
        let resource = resource.clone();
        Self { store, writer, resource, paths, known, latest, is_in_doubt: false }
    }

    /// Claims the resource, and returns its content as of the claim.
    ///
    /// Claim before the first read: afterwards, no older token changes the resource any more. A claim
    /// with the token and holder of the fence writes the register, too: this proves that the content
    /// is not older than the claim.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the claim may have been applied, or may still be applied later. It may
    /// be repeated.
    pub async fn claim(&mut self, offered: &Fence) -> Result<Outcome<Content>, RegisterError> {
        self.change(offered, Change::Claim).await
    }

    /// Sets the value. The returned content has no value, because the caller has it.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the write may have been applied, or may still be applied later, as
    /// after [`Outcome::Unknown`].
    pub async fn write(
        &mut self,
        offered: &Fence,
        value: Bytes,
    ) -> Result<Outcome<Content>, RegisterError> {
        self.change(offered, Change::Write(value)).await
    }

    /// Deletes the value. The fence stays, so the register does.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do.
    ///
    /// # Cancellation safety
    /// As [`write`](Self::write).
    pub async fn delete(&mut self, offered: &Fence) -> Result<Outcome<Content>, RegisterError> {
        self.change(offered, Change::Delete).await
    }

    /// Reads the register without a claim. Another client may change it at any time.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing has changed.
    pub async fn read(&mut self) -> Result<Content, RegisterError> {
        let (known, value) = self.load_with_value().await?;
        let content = known.content(value);
        self.known = Some(known);
        Ok(content)
    }

    async fn change(
        &mut self,
        offered: &Fence,
        change: Change,
    ) -> Result<Outcome<Content>, RegisterError> {
        let resource = self.resource.clone();
        let mut is_fresh = false;
        for _ in 0..ATTEMPTS {
            match self.attempt(offered, &change, &mut is_fresh).await? {
                Attempt::Applied(content) => return Ok(Outcome::Applied(content)),
                Attempt::Rejected(rejection) => return Ok(Outcome::Rejected(rejection)),
                Attempt::Again => {}
                Attempt::Unknown(source) => {
                    return Ok(Outcome::Unknown(UnknownOutcome { resource, source }));
                }
            }
        }
        Err(RegisterError::Contended { resource })
    }

    async fn attempt(
        &mut self,
        offered: &Fence,
        change: &Change,
        is_fresh: &mut bool,
    ) -> Result<Attempt, RegisterError> {
        // 1. Take the register as this handle last saw it, or read it. A claim reads the value, too,
        // before the condition of the claim proves that both are current.
        let remembered = self.known.take().filter(|known| known.since.elapsed() < MEMORY);
        let (known, value) = match (remembered, change) {
            (Some(known), Change::Write(_) | Change::Delete) => (known, None),
            (Some(known), Change::Claim) if known.object().is_none() => {
                let value = known.inline_value();
                (known, value)
            }
            (_, Change::Claim) => {
                *is_fresh = true;
                self.load_with_value().await?
            }
            (None, _) => {
                *is_fresh = true;
                (self.load().await?, None)
            }
        };

        // A change without its attributes would leave the others' program with wrong ones.
        if known.attributes().is_some() {
            let reason = "it is kept by another program, such as a storage server: change it there";
            return Err(self.malformed(reason.to_owned()));
        }

        // 2. Let the rule decide. What an earlier call saw rejects nothing.
        if let Some(rejection) = rejection(known.fence(), offered) {
            if !*is_fresh {
                return Ok(Attempt::Again);
            }
            self.known = Some(known);
            return Ok(Attempt::Rejected(rejection));
        }

        // 3. Upload a large value. Its name has the version that was read: once the register has a
        // higher one, nothing can refer to the object any more, unless the register does already.
        let mut next = State::after(known.state(), Some(offered), Value::None);
        next.value = match change {
            Change::Claim => known.state().map_or(Value::None, |state| state.value.clone()),
            Change::Delete => Value::None,
            Change::Write(value) => self.upload(&known, &next, value).await?,
        };

        // 4. Replace the register, if it still is as it was read. What is known afterwards was read
        // by this call.
        *is_fresh = true;
        Ok(match self.send(&known, &next).await? {
            Sent::Applied => {
                Attempt::Applied(Content { version: next.version, fence: next.fence, value })
            }
            Sent::NeverLands => Attempt::Again,
            Sent::Unknown(source) => Attempt::Unknown(source),
        })
    }

    /// Makes the value of the state that is about to follow. A large one is uploaded under a name that has
    /// the version that was read.
    async fn upload(
        &self,
        known: &Snapshot,
        next: &State,
        value: &Bytes,
    ) -> Result<Value, RegisterError> {
        if value.len() <= LONGEST_INLINE_VALUE {
            return Ok(Value::Inline(value.clone()));
        }
        let name = format!("{:020}-{}", known.version(), next.write_id);
        let upload = self.store.put(&self.paths.value(&name), value.clone().into()).await;
        upload.map_err(|source| self.store_failed(source))?;
        Ok(Value::Object(name))
    }
}

/// Returns the rule's rejection of an offer, if there is one.
fn rejection(fence: Option<&Fence>, offered: &Fence) -> Option<Rejection> {
    let reason = match decide(fence, offered) {
        Decision::Advance | Decision::Accept => return None,
        Decision::Stale => RejectionReason::Stale,
        Decision::HolderConflict => RejectionReason::HolderConflict,
    };
    let highest_token = fence.expect("only a fence rejects").token;
    Some(Rejection { reason, token: offered.token, highest_token })
}
