//! Events of the storage.

use crate::{
    picture::{
        caption,
        draft::Draft,
        story::{Arrival, Tone},
        text::shortened,
    },
    record::{Content, Event, EventKind, Reason},
};

/// The most characters of a stored value that are shown.
const VALUE_LENGTH: usize = 18;

/// What the storage decided on the last request.
pub(super) fn storage_event(draft: &mut Draft, event: &Event) {
    let (storage, token) = (event.actor, event.token);
    match &event.kind {
        EventKind::AcceptedClaim(_) => draft.raise_fence(storage, token),
        EventKind::AcceptedWrite(content)
        | EventKind::AcceptedStaleWrite(content)
        | EventKind::AcceptedAnothersToken(content)
            if content.value.is_some() && !draft.last_was_read() =>
        {
            draft.raise_fence(storage, token);
            let destroys = draft.last_destroys();
            let tone = if destroys { Tone::Bad } else { Tone::Plain };
            draft.store(storage, value(content), token, tone);
            if destroys {
                let is_stale = matches!(event.kind, EventKind::AcceptedStaleWrite(_));
                let what = if is_stale { "newer data lost" } else { "update lost" };
                draft.flag(storage, what, Tone::Bad);
            }
        }
        EventKind::Rejected(rejection) => {
            draft.arrives(Arrival::Bounces);
            let offered = token.map(caption::short_token).unwrap_or_default();
            let text = match rejection.reason {
                Reason::HolderConflict => format!("rejected: {offered} is another's"),
                Reason::StaleToken => {
                    let highest = caption::short_token(rejection.highest_token);
                    format!("rejected, stale: {offered} < {highest}")
                }
            };
            draft.flag(storage, text, Tone::Good);
        }
        _ => {}
    }
}

/// A value that is stored.
pub(super) fn value(content: &Content) -> String {
    match &content.value {
        Some(text) => shortened(text, VALUE_LENGTH),
        None => "nothing written".to_owned(),
    }
}
