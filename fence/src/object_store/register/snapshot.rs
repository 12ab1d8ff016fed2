//! A register as it was read.

use std::time::{Duration, Instant};

use ::object_store::{PutMode, UpdateVersion};
use bytes::Bytes;

use crate::{
    object_store::{
        outcome::Content,
        state::{State, Value},
    },
    rule::Fence,
};

/// A register as it was read: its state, and the condition that it still is so. It may not exist yet.
#[derive(Clone, Debug)]
pub struct Snapshot {
    found: Option<(State, UpdateVersion)>,
    pub(super) since: Instant,
}

impl Snapshot {
    pub(super) fn new(found: Option<(State, UpdateVersion)>) -> Self {
        Self { found, since: Instant::now() }
    }

    /// Returns its version. 0 if there is no register yet.
    pub fn version(&self) -> u64 {
        self.state().map_or(0, |state| state.version)
    }

    /// Returns its fence, if it has one.
    pub fn fence(&self) -> Option<&Fence> {
        self.state().and_then(|state| state.fence.as_ref())
    }

    /// Returns the attributes that a program has [kept](super::Register::replace) with it. There are none
    /// if there is no register yet, or if a claim, a write or a delete has made it.
    pub fn attributes(&self) -> Option<&str> {
        self.state().and_then(|state| state.attributes.as_deref())
    }

    /// Whether it has a value.
    pub fn has_value(&self) -> bool {
        self.state().is_some_and(|state| state.value != Value::None)
    }

    /// Returns how many bytes of its value are a part of the register itself.
    pub fn inline_bytes(&self) -> usize {
        match self.state().map(|state| &state.value) {
            Some(Value::Inline(value)) => value.len(),
            Some(Value::None | Value::Object(_)) | None => 0,
        }
    }

    /// Returns how long ago it was read or written.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    pub(super) fn state(&self) -> Option<&State> {
        self.found.as_ref().map(|(state, _)| state)
    }

    pub(super) fn inline_value(&self) -> Option<Bytes> {
        match &self.state()?.value {
            Value::Inline(value) => Some(value.clone()),
            Value::None | Value::Object(_) => None,
        }
    }

    /// The name of the object that is its value.
    pub(super) fn object(&self) -> Option<&str> {
        self.state().and_then(|state| state.value.object())
    }

    pub(super) fn content(&self, value: Option<Bytes>) -> Content {
        Content { version: self.version(), fence: self.fence().cloned(), value }
    }

    /// The condition that the register still is as it was read.
    pub(super) fn condition(&self) -> PutMode {
        match &self.found {
            None => PutMode::Create,
            Some((_, version)) => PutMode::Update(version.clone()),
        }
    }
}
