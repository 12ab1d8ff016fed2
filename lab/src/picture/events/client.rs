//! Events of clients.

use super::storage::value;
use crate::{
    picture::{
        caption,
        draft::Draft,
        story::{Arrival, Content, Message, Tone},
        text::seconds,
    },
    record::{Actor, Event},
};

/// What becomes of a client and its lock.
pub(super) fn lock_event(draft: &mut Draft, event: &Event) {
    let actor = event.actor;
    match event.event.as_str() {
        "acquired" => {
            draft.grant(actor, event.token);
            if let Some(other) = event.text("beside") {
                draft.flag(actor, format!("BESIDE {other}"), Tone::Bad);
            }
        }
        "set-without-expiry" => {
            draft.grant(actor, None);
            draft.flag(actor, "SETNX", Tone::Plain);
        }
        "paused" => draft.start(actor, Content::Pause),
        "resumed" => {
            draft.end(actor, |content| content == Content::Pause);
            draft.flag(actor, "wakes up", Tone::Odd);
        }
        "killed" => {
            draft.kill(actor);
            draft.flag(actor, "killed", Tone::Odd);
        }
        "busy" => draft.start(actor, Content::Wait),
        "gave-up" => {
            let waited = draft.end(actor, |content| content == Content::Wait);
            let text = if waited { "gives up" } else { "finds it held" };
            draft.flag(actor, text, Tone::Odd);
        }
        "no-majority" => draft.flag(actor, "no majority", Tone::Odd),
        "reissued" => {
            draft.reissue(actor, event.token);
            let token = event.token.map(caption::short_token).unwrap_or_default();
            draft.optional_flag(actor, format!("reissued as {token}"), Tone::Good);
        }
        "lost" => {
            draft.end_lease(actor);
            draft.flag(actor, "lease lost", Tone::Good);
        }
        "lease-lost" => {
            draft.end_lease(actor);
            draft.optional_flag(actor, "finds its lease over", Tone::Plain);
        }
        "released" => {
            draft.end_lease(actor);
            draft.optional_flag(actor, "releases", Tone::Plain);
        }
        "compared" => draft.flag(actor, "GET: its own", Tone::Plain),
        "deleted" if event.number("keys") == Some(0) => {
            draft.flag(actor, "DEL: nothing there", Tone::Odd);
        }
        "deleted" => {
            draft.end_lease(actor);
            draft.flag(actor, "DEL", Tone::Plain);
        }
        _ => {}
    }
}

/// What a client does with its lock.
pub(super) fn work_event(draft: &mut Draft, event: &Event) {
    let (actor, token) = (event.actor, event.token);
    let left = || event.number("left").unwrap_or_default();
    match event.event.as_str() {
        "read" => {
            draft.show(Actor::Storage, value(event));
            draft.send([actor, Actor::Storage], token, Message::Read);
            draft.optional_flag(actor, "reads", Tone::Plain);
        }
        "claim-refused" => {
            draft.send([actor, Actor::Storage], token, Message::Read);
            draft.optional_flag(actor, "claims", Tone::Plain);
        }
        "lease-checked" => {
            let remaining_ms = event.number("remaining_ms").unwrap_or_default();
            let text = format!("lease OK: {} s left", seconds(remaining_ms));
            draft.optional_flag(actor, text, Tone::Plain);
        }
        "written" | "refused" => {
            // A write that the network held back reaches the storage from there.
            let held = |content| content == Content::HeldBack(token);
            let from = if draft.end(Actor::Network, held) { Actor::Network } else { actor };
            draft.send([from, Actor::Storage], token, Message::Write);
            if from == actor {
                draft.wanted_flag(actor, caption::write(token), Tone::Plain);
            }
            if event.number("overwrites_unseen").is_some_and(|unseen| unseen > 0) {
                draft.arrives(Arrival::DestroysNewer);
            }
        }
        "worked" => draft.optional_flag(actor, "work done", Tone::Plain),
        "stock-read" => draft.flag(actor, format!("reads: {} left", left()), Tone::Plain),
        "bought" => draft.flag(actor, format!("buys: {} left", left()), Tone::Plain),
        "not-bought" => draft.flag(actor, "buys: rejected", Tone::Good),
        "aborted" => draft.flag(actor, "buys: aborted", Tone::Good),
        _ => {}
    }
}

/// What many clients did.
pub(super) fn crowd_event(draft: &mut Draft, event: &Event) {
    let number = |name: &str| event.number(name).unwrap_or_default();
    let text = match event.event.as_str() {
        "served" => format!("{} come, {} buy", number("buyers"), number("bought")),
        "handed-over" => {
            draft.end(Actor::Others, |content| content == Content::Wait);
            format!("{} handovers", number("handovers"))
        }
        _ => return,
    };
    draft.flag(event.actor, text, Tone::Plain);
}
