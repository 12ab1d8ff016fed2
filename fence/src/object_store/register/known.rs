//! What a handle knows of its register.

use std::time::Instant;

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
pub(super) struct Known {
    found: Option<(State, UpdateVersion)>,
    pub(super) since: Instant,
}

impl Known {
    pub(super) fn new(found: Option<(State, UpdateVersion)>) -> Self {
        Self { found, since: Instant::now() }
    }

    pub(super) fn state(&self) -> Option<&State> {
        self.found.as_ref().map(|(state, _)| state)
    }

    pub(super) fn version(&self) -> u64 {
        self.state().map_or(0, |state| state.version)
    }

    pub(super) fn fence(&self) -> Option<&Fence> {
        self.state().map(|state| &state.fence)
    }

    pub(super) fn inline_value(&self) -> Option<Bytes> {
        match &self.state()?.value {
            Value::Inline(value) => Some(value.clone()),
            Value::None | Value::Object(_) => None,
        }
    }

    /// The name of the object that is its value.
    pub(super) fn object(&self) -> Option<&str> {
        match &self.state()?.value {
            Value::Object(name) => Some(name),
            Value::None | Value::Inline(_) => None,
        }
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
