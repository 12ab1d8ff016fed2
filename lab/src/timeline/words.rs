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
    let averted = event.world.danger == Danger::Averted;
    let plain = Style::new();
    let good = AnsiColor::Green.on_default();
    let bad = AnsiColor::Red.on_default().bold();
    let odd = AnsiColor::Yellow.on_default();
    match event.event.as_str() {
        "counter-preset" => (format!("the last token given was {token}"), plain),
        "acquired" => (format!("gets the lock, with token {token}"), good),
        "read" => (format!("reads: {}", detail("value")), plain),
        "lease-checked" => {
            let left = event.details.get("remaining_ms").and_then(Value::as_u64).unwrap_or(0);
            let (seconds, tenths) = (left / 1000, left % 1000 / 100);
            (format!("checks its lease: {seconds}.{tenths} s left. Is about to write"), plain)
        }
        "paused" => ("is PAUSED (SIGSTOP)".to_owned(), odd),
        "resumed" => ("WAKES UP (SIGCONT), and does what it was about to".to_owned(), odd),
        "lease-expired" => (format!("the lease of token {token} runs out; the lock is free"), odd),
        "written" => (format!("has written {} with token {token}", detail("value")), plain),
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
