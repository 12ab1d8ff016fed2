//! Events of the storage.

use fence::Token;
use serde_json::Value;

use crate::{
    picture::{
        caption,
        draft::Draft,
        story::{Arrival, Tone},
        text::shortened,
    },
    record::Event,
};

/// The most characters of a stored value that are shown.
const VALUE_LENGTH: usize = 18;

/// What the storage decided on what was sent last.
pub(super) fn storage_event(draft: &mut Draft, event: &Event) {
    let (storage, token) = (event.actor, event.token);
    let offered = token.map(caption::short_token).unwrap_or_default();
    match event.event.as_str() {
        "accepted-claim" => draft.raise_fence(storage, token),
        "accepted-write" | "accepted-stale-write" | "accepted-anothers-token"
            if event.text("value").is_some() && !draft.last_was_read() =>
        {
            draft.raise_fence(storage, token);
            let destroys = draft.last_destroys();
            let tone = if destroys { Tone::Bad } else { Tone::Plain };
            draft.store(storage, value(event), token, tone);
            if destroys {
                let is_stale = event.event == "accepted-stale-write";
                let what = if is_stale { "newer data lost" } else { "update lost" };
                draft.flag(storage, what, Tone::Bad);
            }
        }
        "refused" => {
            draft.arrives(Arrival::Bounces);
            let text = if event.text("reason") == Some("holder-conflict") {
                format!("rejected: {offered} is another's")
            } else {
                let highest = event.number("highest_token").unwrap_or_default();
                let highest =
                    Token::try_from(highest).map(caption::short_token).unwrap_or_default();
                format!("rejected, stale: {offered} < {highest}")
            };
            draft.flag(storage, text, Tone::Good);
        }
        _ => {}
    }
}

/// A value that is stored.
pub(super) fn value(event: &Event) -> String {
    match event.details.get("value") {
        Some(Value::String(text)) => shortened(text, VALUE_LENGTH),
        _ => "nothing written".to_owned(),
    }
}
