//! Events of clients.

use super::storage::value;
use crate::{
    picture::{
        caption,
        draft::Draft,
        story::{Arrival, Content, Message, Tone},
        text::seconds,
    },
    record::{Actor, Event, EventKind},
};

/// What happens to a client and its lock.
pub(super) fn lock_event(draft: &mut Draft, event: &Event) {
    let actor = event.actor;
    match &event.kind {
        EventKind::Acquired { beside, .. } => {
            draft.grant(actor, event.token);
            if let Some(other) = beside {
                draft.flag(actor, format!("BESIDE {other}"), Tone::Bad);
            }
        }
        EventKind::SetWithoutExpiry => {
            draft.grant(actor, None);
            draft.flag(actor, "SETNX", Tone::Plain);
        }
        EventKind::Paused => draft.start(actor, Content::Pause),
        EventKind::Resumed => {
            draft.end(actor, |content| content == Content::Pause);
            draft.flag(actor, "wakes up", Tone::Odd);
        }
        EventKind::Killed => {
            draft.kill(actor);
            draft.flag(actor, "killed", Tone::Odd);
        }
        EventKind::Busy => draft.start(actor, Content::Wait),
        EventKind::GaveUp { .. } => {
            let waited = draft.end(actor, |content| content == Content::Wait);
            let text = if waited { "gives up" } else { "finds it held" };
            draft.flag(actor, text, Tone::Odd);
        }
        EventKind::NoMajority => draft.flag(actor, "no majority", Tone::Odd),
        EventKind::Unanswered => draft.flag(actor, "no answer", Tone::Odd),
        EventKind::Reissued { .. } => {
            draft.reissue(actor, event.token);
            let token = event.token.map(caption::short_token).unwrap_or_default();
            draft.optional_flag(actor, format!("reissued as {token}"), Tone::Good);
        }
        EventKind::Lost => {
            draft.end_lease(actor);
            draft.flag(actor, "lease lost", Tone::Good);
        }
        EventKind::LeaseLost | EventKind::LeaseOver => {
            draft.end_lease(actor);
            draft.optional_flag(actor, "finds its lease over", Tone::Plain);
        }
        EventKind::Released => {
            draft.end_lease(actor);
            draft.optional_flag(actor, "releases", Tone::Plain);
        }
        EventKind::Compared { .. } => draft.flag(actor, "GET: its own", Tone::Plain),
        EventKind::Deleted { keys: 0 } => {
            draft.flag(actor, "DEL: nothing there", Tone::Odd);
        }
        EventKind::Deleted { .. } => {
            draft.end_lease(actor);
            draft.flag(actor, "DEL", Tone::Plain);
        }
        _ => {}
    }
}

/// What a client does with its lock.
pub(super) fn work_event(draft: &mut Draft, event: &Event) {
    let (actor, token) = (event.actor, event.token);
    match &event.kind {
        EventKind::Read(content) => {
            draft.show(Actor::Storage, value(content));
            draft.send([actor, Actor::Storage], token, Message::Read);
            draft.optional_flag(actor, "reads", Tone::Plain);
        }
        EventKind::ClaimRejected(_) => {
            draft.send([actor, Actor::Storage], token, Message::Read);
            draft.optional_flag(actor, "claims", Tone::Plain);
        }
        EventKind::LeaseChecked { remaining_ms } => {
            let text = format!("lease OK: {} s left", seconds(*remaining_ms));
            draft.optional_flag(actor, text, Tone::Plain);
        }
        EventKind::Written { overwrites_unseen, .. } => {
            write(draft, event);
            if *overwrites_unseen > 0 {
                draft.arrives(Arrival::DestroysNewer);
            }
        }
        EventKind::Rejected(_) => write(draft, event),
        EventKind::Unavailable => draft.flag(actor, "storage unavailable", Tone::Odd),
        EventKind::Worked => draft.optional_flag(actor, "work done", Tone::Plain),
        EventKind::StockRead { left } => {
            draft.flag(actor, format!("reads: {left} left"), Tone::Plain);
        }
        EventKind::Bought { left } => {
            draft.flag(actor, format!("buys: {left} left"), Tone::Plain);
        }
        EventKind::NotBought => draft.flag(actor, "buys: rejected", Tone::Good),
        EventKind::Aborted => draft.flag(actor, "buys: aborted", Tone::Good),
        _ => {}
    }
}

fn write(draft: &mut Draft, event: &Event) {
    let (actor, token) = (event.actor, event.token);
    // A write that the network held back reaches the storage from there.
    let held = |content| content == Content::HeldBack(token);
    let from = if draft.end(Actor::Network, held) { Actor::Network } else { actor };
    draft.send([from, Actor::Storage], token, Message::Write);
    if from == actor {
        draft.wanted_flag(actor, caption::write(token), Tone::Plain);
    }
}

/// What many clients did.
pub(super) fn crowd_event(draft: &mut Draft, event: &Event) {
    let text = match event.kind {
        EventKind::Served { buyers, bought, .. } => format!("{buyers} come, {bought} buy"),
        EventKind::HandedOver { handovers } => {
            draft.end(Actor::Others, |content| content == Content::Wait);
            format!("{handovers} handovers")
        }
        _ => return,
    };
    draft.flag(event.actor, text, Tone::Plain);
}
