//! The content of a panel: tracks with bars, values and flags, and arrows between the tracks. Times
//! are numbers of moments, so nothing here depends on coordinates.

use fence::Token;

use crate::record::Actor;

/// One world of a run.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) world: &'static str,
    pub(super) title: &'static str,
    pub(super) verdict: Verdict,
    /// How the world ended, in words.
    pub(super) facts: String,
    /// When each moment was, in milliseconds of the run. The first is the start, before all events.
    pub(super) moments: Vec<u64>,
    /// From the top to the bottom.
    pub(super) tracks: Vec<Track>,
    pub(super) arrows: Vec<Arrow>,
}

/// A world's end in a few words.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) words: String,
    pub(super) tone: Tone,
}

/// How something looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    /// A failure that the scenario causes.
    Odd,
    Bad,
}

/// One actor's row.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) actor: Actor,
    pub(super) kind: Kind,
    pub(super) bars: Vec<Bar>,
    /// The values that it has, one after the other.
    pub(super) values: Vec<Value>,
    /// The tokens below which it rejects, if it checks them.
    pub(super) fence: Option<Vec<FenceLevel>>,
    pub(super) flags: Vec<Flag>,
    /// When it was killed, if it never came back.
    pub(super) killed: Option<usize>,
}

/// What a track stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    LockService,
    Client,
    Network,
    Storage,
}

/// From one moment to another; without an end, to the end of the world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: Option<usize>,
}

/// Something in a track that lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    pub(super) span: Span,
    pub(super) content: Content,
}

/// The kind of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A held lock.
    Lease(Option<Token>),
    /// The lease is over, and the client has not noticed.
    Belief(Option<Token>),
    /// The client is stopped.
    Pause,
    /// The client waits for the lock.
    Wait,
    /// The network holds a write back.
    HeldBack(Option<Token>),
}

/// A value that is stored from this moment on.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) since: usize,
    pub(super) text: String,
    pub(super) token: Option<Token>,
    /// Whether newer data was lost by it.
    pub(super) tone: Tone,
}

/// From this moment on, lower tokens are rejected.
#[derive(Clone, Copy, Debug)]
pub(super) struct FenceLevel {
    pub(super) since: usize,
    pub(super) token: Token,
}

/// A few words at a moment.
#[derive(Clone, Debug)]
pub(super) struct Flag {
    pub(super) at: usize,
    pub(super) text: String,
    pub(super) tone: Tone,
    pub(super) weight: Weight,
}

/// Whether the picture makes space for a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// It does.
    Needed,
    /// It does not, but this flag comes before the optional ones.
    Wanted,
    /// It does not.
    Optional,
}

/// A message from one track to a lower one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrow {
    pub(super) at: usize,
    pub(super) from: Actor,
    pub(super) to: Actor,
    pub(super) token: Option<Token>,
    pub(super) message: Message,
    pub(super) arrival: Arrival,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Grant,
    Expiry,
    Read,
    Write,
}

/// The effect of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Lands,
    /// It overwrites an update that its sender has not seen.
    DestroysNewer,
    /// It is rejected.
    Bounces,
}

impl Story {
    /// The number of a track, from the top.
    pub(super) fn track_of(&self, actor: Actor) -> Option<usize> {
        self.tracks.iter().position(|track| track.actor == actor)
    }

    /// How long a span lasted, in milliseconds.
    pub(super) fn lasted_ms(&self, span: Span) -> u64 {
        let last = self.moments.len() - 1;
        self.moments[span.end.unwrap_or(last)].saturating_sub(self.moments[span.start])
    }
}
