//! Events of lock services, and of the network.

use crate::{
    picture::{
        draft::Draft,
        story::{Content, Tone},
        text::seconds,
    },
    record::{Actor, Event},
};

/// What happens to a lock service of one server, or to the network.
pub(super) fn service_event(draft: &mut Draft, event: &Event) {
    let (actor, token) = (event.actor, event.token);
    let number = |name: &str| event.number(name).unwrap_or_default();
    let whose = event.text("whose").unwrap_or("somebody");
    match event.event.as_str() {
        "restarted" => {
            let empty = if number("keys") == 0 { " empty" } else { "" };
            draft.flag(actor, format!("killed, restarts{empty}"), Tone::Odd);
            if !empty.is_empty() {
                draft.cut_off_all();
            }
        }
        "in-step" => draft.optional_flag(actor, "in step", Tone::Plain),
        "cut-off" => draft.flag(actor, "cut off", Tone::Odd),
        "promoted" => {
            draft.promote(actor);
            draft.flag(actor, "promoted", Tone::Odd);
        }
        "lease-expired" => draft.expire(actor, client(whose), token),
        "lock-remains" => match event.number("remaining_ms") {
            Some(remaining) => {
                draft.flag(actor, format!("expires in {} s", seconds(remaining)), Tone::Good);
            }
            None => draft.flag(actor, "held, without an end", Tone::Bad),
        },
        "lock-deleted" => {
            if let Some(client) = client(whose) {
                draft.cut_off(client);
            }
            draft.flag(actor, format!("{whose}'s lock deleted"), Tone::Bad);
        }
        "lock-kept" => draft.flag(actor, format!("{whose} keeps it"), Tone::Good),
        "request-held" => draft.hold_back(token),
        "request-delivered" => draft.optional_flag(actor, "delivers it", Tone::Odd),
        "waited-for" => {
            draft.start(Actor::Others, Content::Wait);
            draft.flag(Actor::Others, format!("{} wait", number("waiters")), Tone::Plain);
        }
        "done" => draft.flag(actor, format!("{} scripts", number("scripts")), Tone::Plain),
        "stock" => {
            let too_many = number("sold") > number("items");
            let tone = if too_many { Tone::Bad } else { Tone::Plain };
            let text = format!("{} left, {} sold", number("left"), number("sold"));
            draft.store(actor, text, None, tone);
        }
        _ => {}
    }
}

/// What happens to several nodes, or to one of them.
pub(super) fn nodes_event(draft: &mut Draft, event: &Event) {
    let actor = event.actor;
    let nodes = event.text("nodes").unwrap_or("all");
    match event.event.as_str() {
        "killed" => draft.flag(actor, format!("{nodes} killed"), Tone::Odd),
        "started-again" => draft.flag(actor, format!("{nodes} back"), Tone::Plain),
        "forgot" => draft.flag(actor, format!("{nodes} forgets the lock"), Tone::Odd),
        "clock-jumped" => {
            let seconds = event.number("seconds").unwrap_or_default();
            draft.flag(actor, format!("{nodes}'s clock: +{seconds} s"), Tone::Odd);
        }
        "replies-lost" => draft.flag(actor, format!("replies of {nodes} lost"), Tone::Odd),
        "taken" => match event.number("taken") {
            None | Some(0) => draft.flag(actor, "all free", Tone::Good),
            Some(taken) if event.text("held_by").is_none() => {
                draft.flag(actor, format!("held on {taken}, by nobody"), Tone::Bad);
            }
            Some(taken) => draft.flag(actor, format!("held on {taken}"), Tone::Bad),
        },
        "admitted-by-hand" => draft.flag(actor, format!("{nodes} votes, by hand"), Tone::Odd),
        "admitting" => draft.flag(actor, format!("{nodes} must wait"), Tone::Plain),
        "admitted" => draft.flag(actor, format!("{nodes} votes again"), Tone::Good),
        _ => service_event(draft, event),
    }
}

/// The client with a title.
fn client(title: &str) -> Option<Actor> {
    let clients = [Actor::Client1, Actor::Client2, Actor::Client3];
    clients.into_iter().find(|client| client.title() == title)
}
