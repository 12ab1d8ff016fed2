//! A sandbox: real clients, a real lock service and a real storage, which somebody drives by hand.
//!
//! [`play`] starts them with the [`Settings`], and carries out each [`Action`] that is requested, one
//! after the other. What happens is recorded as in a scenario. The clients are those of the scenarios,
//! on the same [stage](crate::scenario::stage).
//!
//! Start with `action`, then `playing`. A `lock_service` is one of several, which breaks down in its own
//! ways, and a `store` is one of several. A `seat` is the place of a client, and knows when its lease is over.

mod action;
mod lock_service;
mod playing;
mod redis;
mod redlock;
mod seat;
mod settings;
mod single_server;
mod store;

use serde::Serialize;

pub(crate) use self::{
    action::Action,
    playing::{Answer, RejectedAction, Request, play},
    settings::Settings,
};
use crate::record::{Actor, World};

/// What the page knows of all sandboxes, as of a scenario.
#[derive(Debug, Serialize)]
pub(crate) struct Description {
    name: &'static str,
    claim: &'static str,
    worlds: &'static [World],
    tracks: &'static [Actor],
}

/// The description of a sandbox. Its record has this name in the place of a scenario's.
pub(crate) static DESCRIPTION: Description = Description {
    name: "sandbox",
    claim: "Real processes, driven by hand.",
    worlds: &settings::WORLDS,
    tracks: &[],
};
