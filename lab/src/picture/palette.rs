//! Which colour each token has. A colour is a class, so that it can differ in the dark.

use std::collections::BTreeSet;

use fence::Token;

use super::story::{Content, Story};

const COLOURS: [&str; 5] = ["t0", "t1", "t2", "t3", "t4"];
const NONE: &str = "tn";

/// The colours of a picture's tokens.
#[derive(Debug)]
pub(super) struct Palette {
    tokens: Vec<Token>,
}

impl Palette {
    /// Gives the tokens colours in the order of their height.
    pub(super) fn new<'a>(stories: impl Iterator<Item = &'a Story>) -> Self {
        let tracks = stories.flat_map(|story| &story.tracks);
        let bars = tracks.flat_map(|track| &track.bars);
        let tokens = bars.filter_map(|bar| match bar.content {
            Content::Lease(token) => token,
            _ => None,
        });
        Self { tokens: tokens.collect::<BTreeSet<_>>().into_iter().collect() }
    }

    /// The class of a token.
    pub(super) fn class(&self, token: Option<Token>) -> &'static str {
        let number = token.and_then(|token| self.tokens.binary_search(&token).ok());
        number.map_or(NONE, |number| COLOURS[number % COLOURS.len()])
    }
}
