//! Events of lock services, and of the network.

use crate::{
    picture::{
        caption,
        draft::Draft,
        story::{Content, Tone},
        text::seconds,
    },
    record::{Actor, Event, EventKind},
};

/// What happens to a lock service of one server, or to the network.
pub(super) fn service_event(draft: &mut Draft, event: &Event) {
    let (actor, token) = (event.actor, event.token);
    match event.kind {
        EventKind::Restarted { keys: 0 } => {
            draft.flag(actor, "killed, restarts empty", Tone::Odd);
            draft.cut_off_all();
        }
        EventKind::Restarted { .. } => draft.flag(actor, "killed, restarts", Tone::Odd),
        EventKind::SnapshotSaved => draft.optional_flag(actor, "snapshot saved", Tone::Plain),
        EventKind::SnapshotRestored => {
            draft.flag(actor, "snapshot restored", Tone::Odd);
            draft.cut_off_all();
        }
        EventKind::InStep => draft.optional_flag(actor, "in step", Tone::Plain),
        EventKind::CutOff => draft.flag(actor, "cut off", Tone::Odd),
        EventKind::Promoted => {
            draft.promote(actor);
            draft.flag(actor, "promoted", Tone::Odd);
        }
        EventKind::LeaseExpired { whose } => draft.expire(actor, Some(whose), token),
        EventKind::LockRemains { remaining_ms: Some(remaining) } => {
            draft.flag(actor, format!("expires in {} s", seconds(remaining)), Tone::Good);
        }
        EventKind::LockRemains { remaining_ms: None } => {
            draft.flag(actor, "held, without an end", Tone::Bad);
        }
        EventKind::LockDeleted { whose } => {
            draft.cut_off(whose);
            draft.flag(actor, format!("{}'s lock deleted", whose.title()), Tone::Bad);
        }
        EventKind::LockForgotten { whose } => {
            draft.cut_off(whose);
            draft.flag(actor, format!("{}'s lock forgotten", whose.title()), Tone::Bad);
        }
        EventKind::LockKept { whose } => {
            draft.flag(actor, format!("{} keeps it", whose.title()), Tone::Good);
        }
        EventKind::RequestHeld => draft.hold_back(token),
        EventKind::RequestDelivered => draft.optional_flag(actor, "delivers it", Tone::Odd),
        EventKind::ClientCutOff { client } => {
            draft.flag(actor, format!("{} cut off", client.title()), Tone::Odd);
        }
        EventKind::ClientConnected { client } => {
            draft.flag(actor, format!("{} back", client.title()), Tone::Plain);
        }
        EventKind::StandbysCutOff => draft.flag(actor, "standbys cut off", Tone::Odd),
        EventKind::CommitWaits => draft.flag(actor, "a commit waits", Tone::Plain),
        EventKind::PrimaryKilled => draft.flag(actor, "primary killed", Tone::Odd),
        EventKind::PrimaryCutOff => draft.flag(actor, "primary cut off", Tone::Odd),
        EventKind::StandbyPromoted => {
            let fence = token.map(|token| format!(", fence at {}", caption::short_token(token)));
            draft.flag(actor, format!("promoted{}", fence.unwrap_or_default()), Tone::Odd);
            draft.cut_off_all_of(actor);
        }
        EventKind::AcceptedByOldPrimary(_) => {
            draft.divert();
            let accepted = token.map(caption::short_token).unwrap_or_default();
            draft.flag(actor, format!("old primary accepts {accepted}"), Tone::Bad);
        }
        EventKind::WaitedFor { waiters } => {
            draft.start(Actor::Others, Content::Wait);
            draft.flag(Actor::Others, format!("{waiters} wait"), Tone::Plain);
        }
        EventKind::Done { scripts, .. } => {
            draft.flag(actor, format!("{scripts} scripts"), Tone::Plain);
        }
        EventKind::Stock { left, sold, items } => {
            let tone = if sold > items { Tone::Bad } else { Tone::Plain };
            draft.store(actor, format!("{left} left, {sold} sold"), None, tone);
        }
        _ => {}
    }
}

/// What happens to several nodes, or to one of them.
pub(super) fn nodes_event(draft: &mut Draft, event: &Event) {
    let actor = event.actor;
    match &event.kind {
        EventKind::Unreachable { nodes } => {
            draft.flag(actor, format!("{nodes} cut off"), Tone::Odd);
        }
        EventKind::ReachableAgain { nodes } => {
            draft.flag(actor, format!("{nodes} back"), Tone::Plain);
        }
        EventKind::Forgot { nodes, .. } => {
            draft.flag(actor, format!("{nodes} forgets the lock"), Tone::Odd);
        }
        EventKind::ClockJumped { nodes, seconds } => {
            draft.flag(actor, format!("{nodes}'s clock: +{seconds} s"), Tone::Odd);
        }
        EventKind::RepliesLost { nodes } => {
            draft.flag(actor, format!("replies of {nodes} lost"), Tone::Odd);
        }
        EventKind::Taken { taken: 0, .. } => draft.flag(actor, "all free", Tone::Good),
        EventKind::Taken { taken, held_by: None, .. } => {
            draft.flag(actor, format!("held on {taken}, by nobody"), Tone::Bad);
        }
        EventKind::Taken { taken, .. } => {
            draft.flag(actor, format!("held on {taken}"), Tone::Bad);
        }
        EventKind::AdmittedByHand { nodes } => {
            draft.flag(actor, format!("{nodes} votes, by hand"), Tone::Odd);
        }
        EventKind::Admitting { nodes } => {
            draft.flag(actor, format!("{nodes} must wait"), Tone::Plain);
        }
        EventKind::Admitted { nodes } => {
            draft.flag(actor, format!("{nodes} votes again"), Tone::Good);
        }
        _ => service_event(draft, event),
    }
}
