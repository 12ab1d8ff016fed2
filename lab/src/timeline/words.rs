//! What the events say to somebody who has never heard of fencing.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::record::{Actor, Danger, Event};

/// What an event says, and how it looks.
pub(super) fn told(event: &Event) -> (String, Style) {
    let token = event.token.map_or_else(String::new, |token| token.to_string());
    let detail = |name: &str| match event.details.get(name) {
        Some(Value::String(text)) => format!("'{text}'"),
        Some(Value::Number(number)) => number.to_string(),
        _ => "nothing".to_owned(),
    };
    let text = |name: &str| event.details.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| event.details.get(name).and_then(Value::as_u64).unwrap_or(0);
    let seconds = |name: &str| {
        let millis = number(name);
        format!("{}.{} s", millis / 1000, millis % 1000 / 100)
    };
    let averted = event.world.danger == Danger::Averted;
    let plain = Style::new();
    let good = AnsiColor::Green.on_default();
    let bad = AnsiColor::Red.on_default().bold();
    let odd = AnsiColor::Yellow.on_default();
    match event.event.as_str() {
        "counter-preset" if event.token.is_none() => ("its counter starts at 0".to_owned(), plain),
        "counter-from-the-clock" => ("its counter is to start at the clock".to_owned(), plain),
        "restarted" => (format!("is KILLED, and starts again, with {} keys", number("keys")), odd),
        "in-step" => ("has all that the primary has".to_owned(), plain),
        "cut-off" => ("is CUT OFF from its primary".to_owned(), odd),
        "promoted" => ("is PROMOTED: it is the lock service now".to_owned(), odd),
        "claim-refused" => (format!("claims with token {token}, and is refused"), odd),
        "reissued" => {
            let before = number("instead_of");
            (format!("has read nothing yet: takes token {token} instead of {before}"), good)
        }
        "lost" => ("has LOST its lease: it must begin anew".to_owned(), good),
        "accepted-anothers-token" => (format!("accepts token {token}, which ANOTHER HAS TOO"), bad),
        "counter-preset" => (format!("the last token given was {token}"), plain),
        "busy" => ("finds the lock taken, and waits".to_owned(), odd),
        "gave-up" if event.details.get("waited_ms") == Some(&0.into()) => {
            ("finds the lock taken, and goes away".to_owned(), good)
        }
        "gave-up" => (format!("waits {}, and gives up", seconds("waited_ms")), odd),
        "set-without-expiry" => ("SETNX: the lock is its own. Is about to EXPIRE it".into(), plain),
        "acquired" if event.token.is_none() => {
            (format!("gets the lock, for {}", seconds("ttl_ms")), good)
        }
        "acquired" => (format!("gets the lock, with token {token}"), good),
        "read" => (format!("reads: {}", detail("value")), plain),
        "stock" => {
            let (left, sold, items) = (number("left"), number("sold"), number("items"));
            let style = if sold > items { bad } else { plain };
            let verdict = if sold > items { ": TOO MANY" } else { "" };
            (format!("{left} items left, {sold} sold{verdict}"), style)
        }
        "stock-read" => (format!("reads: {} left", number("left")), plain),
        "bought" => (format!("takes an item, and writes: {} left", number("left")), plain),
        "not-bought" => (format!("tries to take an item with token {token}: REFUSED"), good),
        "aborted" => ("tries to take an item: ABORTED, as others have".to_owned(), good),
        "served" => {
            let (buyers, bought) = (number("buyers"), number("bought"));
            (format!("{buyers} more come at once; {bought} of them buy an item"), plain)
        }
        "waited-for" => (format!("{} wait for the lock", number("waiters")), plain),
        "handed-over" => {
            (format!("have had the lock, one after the other: {}", number("handovers")), plain)
        }
        "done" => {
            let (scripts, commands) = (number("scripts"), number("commands"));
            (format!("has run {scripts} scripts for them ({commands} commands)"), plain)
        }
        "lease-checked" => {
            let left = seconds("remaining_ms");
            (format!("checks its lease: {left} left. Is about to write"), plain)
        }
        "worked" => ("has done its work. Is about to give the lock back".to_owned(), plain),
        "compared" => ("GET: the lock is its own. Is about to DEL it".to_owned(), plain),
        "deleted" if event.details.get("keys") == Some(&0.into()) => {
            ("DEL, which finds nothing any more".to_owned(), odd)
        }
        "deleted" => ("DEL".to_owned(), plain),
        "killed" => ("is KILLED (SIGKILL)".to_owned(), odd),
        "paused" => ("is PAUSED (SIGSTOP)".to_owned(), odd),
        "resumed" => ("WAKES UP (SIGCONT), and does what it was about to".to_owned(), odd),
        "lock-remains" if event.details.get("remaining_ms").is_some_and(Value::is_null) => {
            ("the lock is taken, and HAS NO END".to_owned(), bad)
        }
        "lock-remains" => (format!("the lock will be free in {}", seconds("remaining_ms")), good),
        "lock-deleted" => (format!("{}'s lock IS DELETED", text("whose")), bad),
        "lock-kept" => (format!("{} keeps the lock", text("whose")), good),
        "request-held" => (format!("HOLDS BACK the write with token {token}"), odd),
        "request-delivered" => (format!("DELIVERS the write with token {token}"), odd),
        "lease-expired" if event.token.is_none() => {
            (format!("{}'s lease runs out; the lock is free", text("whose")), odd)
        }
        "lease-expired" => (format!("the lease of token {token} runs out; the lock is free"), odd),
        "written" => (format!("has written {} with token {token}", detail("value")), plain),
        "refused" if event.actor == Actor::Storage && text("reason") == "holder-conflict" => {
            (format!("REFUSES token {token}: it is another holder's"), good)
        }
        "refused" if event.actor == Actor::Storage => {
            (format!("REFUSES token {token}: it has seen {}", detail("highest_token")), good)
        }
        "refused" => (format!("tries to write with token {token}, and is refused"), odd),
        "released" => ("releases the lock".to_owned(), plain),
        "lease-lost" => ("finds that the lock is not its own any more".to_owned(), odd),
        "answered" => ("answers".to_owned(), plain),
        "accepted-claim" if averted => (format!("refuses tokens below {token} from now on"), good),
        "accepted-claim" => (format!("answers; has seen token {token}"), plain),
        "accepted-stale-write" => (format!("accepts token {token}: NEWER DATA IS LOST"), bad),
        "accepted-write" => (format!("accepts token {token}"), good),
        other => (format!("{other} {token}"), plain),
    }
}
