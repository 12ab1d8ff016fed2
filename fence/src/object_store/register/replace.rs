//! Changes that another program decides, such as a server that decides many requests at once.

use std::sync::Arc;

use ::object_store::{Error, ObjectStore, ObjectStoreExt, path::Path};
use bytes::Bytes;

use super::{Register, Sent, Snapshot};
use crate::{
    object_store::{
        outcome::{RegisterError, UnknownOutcome},
        state::{State, Value},
    },
    rule::Fence,
};

/// The next state of a register.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The fence.
    pub fence: Option<Fence>,
    /// What the program keeps with the value. Claims, writes and deletes of other programs fail from then
    /// on, because they would drop it.
    pub attributes: String,
    /// The value.
    pub value: NewValue,
}

/// The value of the next state.
#[derive(Clone, Debug)]
pub enum NewValue {
    /// It stays as it is.
    Kept,
    /// There is none.
    Absent,
    /// It is this one.
    Present(Bytes),
}

/// The outcome of a replacement.
#[derive(Debug)]
#[must_use = "the register may not have been replaced"]
pub enum Replaced {
    /// The register was replaced.
    Applied {
        /// The register as it is now.
        now: Snapshot,
        /// The former value, if it was large.
        leftover: Option<Leftover>,
    },
    /// Another client has changed the register since it was read. This replacement was not applied, and
    /// never will be.
    Overtaken {
        /// The value that was uploaded in vain, if it is large.
        leftover: Option<Leftover>,
    },
    /// It may have been applied, or may still be.
    Unknown(UnknownOutcome),
}

/// A large value that no register refers to, nor ever will. [`Register::collect`] finds it, too.
#[derive(Debug)]
#[must_use = "it takes space until it is deleted"]
pub struct Leftover {
    store: Arc<dyn ObjectStore>,
    path: Path,
}

impl Leftover {
    /// Deletes it.
    ///
    /// # Errors
    /// If the store failed. It may be deleted all the same.
    pub async fn delete(self) -> Result<(), Error> {
        match self.store.delete(&self.path).await {
            // A collector was faster.
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }
}

impl Register {
    /// Reads the register, without a value that is an object of its own.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing has changed.
    pub async fn snapshot(&mut self) -> Result<Snapshot, RegisterError> {
        self.load().await
    }

    /// Whether the last [replacement](Self::replace) may have been applied, or may still be, although nothing
    /// says so: its outcome is unknown, or its future was dropped while it was on its way.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Replaces the register if it still is as it was read.
    ///
    /// **No rule decides here: the caller has decided.** What it decided on may be as old as the snapshot.
    /// So report a rejection only on one that was read for it.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the replacement may have been applied, or may still be applied later,
    /// as after [`Replaced::Unknown`], unless it [is not in doubt](Self::is_in_doubt).
    pub async fn replace(
        &mut self,
        read: &Snapshot,
        Replacement { fence, attributes, value }: Replacement,
    ) -> Result<Replaced, RegisterError> {
        self.is_in_doubt = false;
        let kept = || read.state().map_or(Value::None, |state| state.value.clone());
        let mut next = State::after(read.state(), fence.as_ref(), Value::None);
        next.attributes = Some(attributes);
        next.value = match &value {
            NewValue::Kept => kept(),
            NewValue::Absent => Value::None,
            NewValue::Present(value) => self.upload(read, &next, value).await?,
        };
        let former = kept();
        // Objects have names of their own, so a value that stays is no leftover.
        let leftover = |value: &Value, other: &Value| {
            let file = value.object().filter(|_| value != other)?;
            Some(Leftover { store: self.store.clone(), path: self.paths.value(file) })
        };
        let (replaced, in_vain) = (leftover(&former, &next.value), leftover(&next.value, &former));
        let sent = self.send(read, &next).await?;
        // The caller has the snapshots, so nothing is remembered here.
        let known = self.known.take();
        Ok(match sent {
            Sent::Applied => {
                let now = known.expect("what was applied is known");
                Replaced::Applied { now, leftover: replaced }
            }
            Sent::NeverLands => Replaced::Overtaken { leftover: in_vain },
            Sent::Unknown(source) => {
                let resource = self.resource.clone();
                Replaced::Unknown(UnknownOutcome { resource, source })
            }
        })
    }
}
