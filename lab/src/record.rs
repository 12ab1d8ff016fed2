//! The record of a run: its events, and how each world ended. As JSON it is what `--json` prints.

mod actor;
mod event;
mod outcome;
mod recorder;
mod wire;
mod world;

use serde::{Deserialize, Serialize};

pub use self::{
    actor::Actor,
    event::{Content, Event, EventKind, Reason, Rejection},
    outcome::{Expected, Fact, Outcome, Outcomes},
    recorder::Recorder,
    wire::{Exchange, Wire, Word},
    world::{Checks, Danger, World},
};

/// The record of a run of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The scenario's name.
    pub scenario: String,
    /// Whether the run showed what the scenario claims.
    pub holds: bool,
    /// What happened, in the order of time.
    pub events: Vec<Event>,
    /// How each world ended.
    pub outcome: Outcomes,
}
