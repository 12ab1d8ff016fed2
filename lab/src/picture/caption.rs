//! The texts in bars and strips.

use fence::Token;

use super::{
    story::{Bar, Content, FenceLevel, Story, Value},
    text::seconds,
};

/// The text in a bar.
pub(super) fn bar(story: &Story, bar: &Bar) -> String {
    match bar.content {
        Content::Lease(Some(token)) => format!("token {}", short_token(token)),
        Content::Lease(None) => "has the lock".to_owned(),
        Content::Belief(_) => String::new(),
        Content::Pause => format!("paused {} s", seconds(story.lasted_ms(bar.span))),
        Content::Wait => "waiting".to_owned(),
        Content::HeldBack(_) => format!("holds the write {} s", seconds(story.lasted_ms(bar.span))),
    }
}

/// A value, and the token that it was written with.
pub(super) fn value(value: &Value) -> String {
    match value.token {
        Some(token) => format!("{} · {}", value.text, short_token(token)),
        None => value.text.clone(),
    }
}

/// The texts for a fence, the longest first.
pub(super) fn fence(level: FenceLevel) -> [String; 2] {
    let token = short_token(level.token);
    [format!("rejects tokens below {token}"), format!("rejects < {token}")]
}

/// What a client does that writes with a token.
pub(super) fn write(token: Option<Token>) -> String {
    token.map_or("writes".to_owned(), |token| format!("writes with {}", short_token(token)))
}

/// A token as it is written in the picture: of a long one, its last digits.
pub(super) fn short_token(token: Token) -> String {
    const DIGITS: usize = 6;
    let text = token.to_string();
    match text.len().checked_sub(DIGITS) {
        Some(cut) if cut > 0 => format!("…{}", &text[cut..]),
        _ => text,
    }
}
