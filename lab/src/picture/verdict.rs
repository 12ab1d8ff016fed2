//! How a world ended, in a few words.

use super::story::{Tone, Verdict};
use crate::record::{Danger, Outcome, World};

/// The words of the first fact that has some.
pub(super) fn verdict(world: &World, outcome: &Outcome) -> Verdict {
    let number = |name: &str| outcome.number(name);
    let by_danger = match world.danger {
        Danger::Strikes => Tone::Bad,
        Danger::Averted => Tone::Good,
    };
    let (words, tone) = if let Some(lost) = number("updates_lost").filter(|lost| *lost > 0) {
        let updates = if lost == 1 { "update" } else { "updates" };
        (format!("{lost} {updates} lost"), Tone::Bad)
    } else if number("updates_lost").is_some() {
        ("nothing lost".to_owned(), Tone::Good)
    } else if let Some(holders) = number("holders_at_once").or(number("at_work_at_once")) {
        let text = if holders == 1 {
            "one at a time".to_owned()
        } else {
            format!("{holders} holders at once")
        };
        (text, by_danger)
    } else if let Some(without_end) = number("locks_without_end") {
        let text = if without_end > 0 { "locked for ever" } else { "lock expired" };
        (text.to_owned(), by_danger)
    } else if let Some(held) = number("taken_by_nobody") {
        let text = if held > 0 { "held by nobody" } else { "all released" };
        (text.to_owned(), by_danger)
    } else if let Some(scripts) = number("scripts_per_handover") {
        (format!("{scripts} scripts per handover"), by_danger)
    } else if let (Some(sold), Some(items)) = (number("sold"), number("items")) {
        (format!("{sold} of {items} sold"), by_danger)
    } else {
        let text = if by_danger == Tone::Bad { "unsafe" } else { "safe" };
        (text.to_owned(), by_danger)
    };
    Verdict { words, tone }
}
