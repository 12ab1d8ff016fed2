//! What the events say to somebody who has never heard of fencing.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::record::{Actor, Checks, Event};

const PLAIN: Style = Style::new();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const ODD: Style = AnsiColor::Yellow.on_default();

/// What an event says, and how it looks.
pub(super) fn told(event: &Event) -> (String, Style) {
    let told = match event.actor {
        Actor::Redis
        | Actor::Replica
        | Actor::NodeA
        | Actor::NodeB
        | Actor::NodeC
        | Actor::NodeD
        | Actor::NodeE
        | Actor::Network => told_of_lock_service(event),
        Actor::Nodes => told_of_nodes(event).or_else(|| told_of_lock_service(event)),
        Actor::Storage => told_of_storage(event),
        Actor::Others => told_of_crowd(event),
        Actor::Client1 | Actor::Client2 | Actor::Client3 => {
            told_of_lock(event).or_else(|| told_of_work(event))
        }
    };
    told.unwrap_or_else(|| (format!("{} {}", event.event, token(event)), PLAIN))
}

/// What the lock service did, or the network to it.
fn told_of_lock_service(event: &Event) -> Option<(String, Style)> {
    let token = token(event);
    let whose = event.text("whose").unwrap_or("somebody");
    Some(match event.event.as_str() {
        "counter-preset" if token.is_empty() => ("its counter starts at 0".to_owned(), PLAIN),
        "counter-preset" => (format!("the last token given was {token}"), PLAIN),
        "counter-from-the-clock" => ("its counter is to start at the clock".to_owned(), PLAIN),
        "restarted" => {
            (format!("is KILLED, and starts again, with {} keys", number(event, "keys")), ODD)
        }
        "in-step" => ("has all that the primary has".to_owned(), PLAIN),
        "cut-off" => ("is CUT OFF from its primary".to_owned(), ODD),
        "promoted" => ("is PROMOTED: it is the lock service now".to_owned(), ODD),
        "lease-expired" if token.is_empty() => {
            (format!("{whose}'s lease runs out; the lock is free"), ODD)
        }
        "lease-expired" => (format!("the lease of token {token} runs out; the lock is free"), ODD),
        "lock-remains" => match event.number("remaining_ms") {
            Some(_) => {
                (format!("the lock will be free in {}", seconds(event, "remaining_ms")), GOOD)
            }
            None => ("the lock is taken, and HAS NO END".to_owned(), BAD),
        },
        "lock-deleted" => (format!("{whose}'s lock IS DELETED"), BAD),
        "lock-kept" => (format!("{whose} keeps the lock"), GOOD),
        "request-held" => (format!("HOLDS BACK the write with token {token}"), ODD),
        "request-delivered" => (format!("DELIVERS the write with token {token}"), ODD),
        "waited-for" => (format!("{} wait for the lock", number(event, "waiters")), PLAIN),
        "done" => {
            let [scripts, commands] = ["scripts", "commands"].map(|name| number(event, name));
            (format!("has run {scripts} scripts for them ({commands} commands)"), PLAIN)
        }
        "stock" => {
            let [left, sold, items] = ["left", "sold", "items"].map(|name| number(event, name));
            let (verdict, style) = if sold > items { (": TOO MANY", BAD) } else { ("", PLAIN) };
            (format!("{left} items left, {sold} sold{verdict}"), style)
        }
        _ => return None,
    })
}

/// What was done to several nodes, or one of them.
fn told_of_nodes(event: &Event) -> Option<(String, Style)> {
    let which = event.text("nodes").unwrap_or("all");
    let several = which.contains(' ');
    let verb = |one: &'static str, more: &'static str| if several { more } else { one };
    Some(match event.event.as_str() {
        "killed" => (format!("{which} {} KILLED (SIGKILL)", verb("is", "are")), ODD),
        "started-again" => {
            let start = verb("starts again, and has", "start again, and have");
            (format!("{which} {start} lost nothing"), PLAIN)
        }
        "forgot" => {
            let with = if number(event, "keys") == 0 { "empty" } else { "on an old copy" };
            (format!("{which} is KILLED, starts {with}, and has FORGOTTEN the lock"), ODD)
        }
        "clock-jumped" => {
            let by = number(event, "seconds");
            (format!("{which}'s clock JUMPS by {by} s: client 1's time is over there"), ODD)
        }
        "replies-lost" => {
            (format!("{which} give client 1 the lock, and their replies ARE LOST"), ODD)
        }
        "taken" => match number(event, "taken") {
            0 => (format!("on {which}, the lock is free"), GOOD),
            taken if event.text("held_by").is_none() => {
                (format!("on {taken} of {which}, the lock is taken, and NOBODY HAS IT"), BAD)
            }
            taken => (format!("on {taken} of {which}, the lock IS TAKEN"), BAD),
        },
        "admitted-by-hand" => (format!("{which} is made to vote again BY HAND"), ODD),
        "admitting" => {
            (format!("{which} is being admitted; first, all older leases have to end"), PLAIN)
        }
        "admitted" => (format!("{which} has the others' counters, and votes again"), GOOD),
        _ => return None,
    })
}

/// What the storage decided.
fn told_of_storage(event: &Event) -> Option<(String, Style)> {
    let token = token(event);
    Some(match event.event.as_str() {
        "answered" => ("answers".to_owned(), PLAIN),
        "accepted-claim" if event.world.checks == Checks::Tokens => {
            (format!("refuses tokens below {token} from now on"), GOOD)
        }
        "accepted-claim" => (format!("answers; has seen token {token}"), PLAIN),
        "accepted-write" if token.is_empty() => ("accepts it".to_owned(), PLAIN),
        "accepted-write" => (format!("accepts token {token}"), GOOD),
        "accepted-stale-write" => (format!("accepts token {token}: NEWER DATA IS LOST"), BAD),
        "accepted-anothers-token" => (format!("accepts token {token}, which ANOTHER HAS TOO"), BAD),
        "refused" if event.text("reason") == Some("holder-conflict") => {
            (format!("REFUSES token {token}: it is another holder's"), GOOD)
        }
        "refused" => {
            (format!("REFUSES token {token}: it has seen {}", number(event, "highest_token")), GOOD)
        }
        _ => return None,
    })
}

/// What many clients did.
fn told_of_crowd(event: &Event) -> Option<(String, Style)> {
    Some(match event.event.as_str() {
        "served" => {
            let [buyers, bought] = ["buyers", "bought"].map(|name| number(event, name));
            (format!("{buyers} more come at once; {bought} of them buy an item"), PLAIN)
        }
        "handed-over" => {
            let handovers = number(event, "handovers");
            (format!("have had the lock, one after the other: {handovers}"), PLAIN)
        }
        _ => return None,
    })
}

/// What became of a client, and of its lock.
fn told_of_lock(event: &Event) -> Option<(String, Style)> {
    let token = token(event);
    Some(match event.event.as_str() {
        "paused" => ("is PAUSED (SIGSTOP)".to_owned(), ODD),
        "resumed" => ("WAKES UP (SIGCONT), and does what it was about to".to_owned(), ODD),
        "killed" => ("is KILLED (SIGKILL)".to_owned(), ODD),
        "set-without-expiry" => ("SETNX: the lock is its own. Is about to EXPIRE it".into(), PLAIN),
        "acquired" => {
            let gets = match event.token {
                Some(token) => format!("gets the lock, with token {token}"),
                None => format!("gets the lock, for {}", seconds(event, "ttl_ms")),
            };
            match event.text("beside") {
                Some(other) => (format!("{gets}, BESIDE {other}, who has it too"), BAD),
                None => (gets, GOOD),
            }
        }
        "no-majority" => ("gets NO MAJORITY of the nodes, and goes away".to_owned(), ODD),
        "busy" => ("finds the lock taken, and waits".to_owned(), ODD),
        "gave-up" if number(event, "waited_ms") == 0 => {
            ("finds the lock taken, and goes away".to_owned(), GOOD)
        }
        "gave-up" => (format!("waits {}, and gives up", seconds(event, "waited_ms")), ODD),
        "reissued" => {
            let before = number(event, "instead_of");
            (format!("has read nothing yet: takes token {token} instead of {before}"), GOOD)
        }
        "lost" => ("has LOST its lease: it must begin anew".to_owned(), GOOD),
        "compared" => ("GET: the lock is its own. Is about to DEL it".to_owned(), PLAIN),
        "deleted" if event.number("keys") == Some(0) => {
            ("DEL, which finds nothing any more".to_owned(), ODD)
        }
        "deleted" => ("DEL".to_owned(), PLAIN),
        "released" => ("releases the lock".to_owned(), PLAIN),
        "lease-lost" => ("finds that the lock is not its own any more".to_owned(), ODD),
        _ => return None,
    })
}

/// What a client did with its lock.
fn told_of_work(event: &Event) -> Option<(String, Style)> {
    let token = token(event);
    let value = || match event.details.get("value") {
        Some(Value::String(text)) => format!("'{text}'"),
        _ => "nothing".to_owned(),
    };
    let written = || match event.token {
        Some(token) => format!("has written {} with token {token}", value()),
        None => format!("has written {}", value()),
    };
    Some(match event.event.as_str() {
        "read" => (format!("reads: {}", value()), PLAIN),
        "claim-refused" => (format!("claims with token {token}, and is refused"), ODD),
        "lease-checked" => {
            let left = seconds(event, "remaining_ms");
            (format!("checks its lease: {left} left. Is about to write"), PLAIN)
        }
        "written" if number(event, "overwrites_unseen") > 0 => {
            (format!("{}: OVERWRITES what it has not seen", written()), BAD)
        }
        "written" => (written(), PLAIN),
        "refused" => (format!("tries to write with token {token}, and is refused"), ODD),
        "worked" => ("has done its work. Is about to give the lock back".to_owned(), PLAIN),
        "stock-read" => (format!("reads: {} left", number(event, "left")), PLAIN),
        "bought" => (format!("takes an item, and writes: {} left", number(event, "left")), PLAIN),
        "not-bought" => (format!("tries to take an item with token {token}: REFUSED"), GOOD),
        "aborted" => ("tries to take an item: ABORTED, as others have".to_owned(), GOOD),
        _ => return None,
    })
}

fn token(event: &Event) -> String {
    event.token.map_or_else(String::new, |token| token.to_string())
}

fn number(event: &Event, name: &str) -> u64 {
    event.number(name).unwrap_or(0)
}

fn seconds(event: &Event, name: &str) -> String {
    let millis = number(event, name);
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}
