//! A story that grows with each event.

use fence::Token;

use super::{
    caption,
    story::{
        Arrival, Arrow, Bar, Content, FenceLevel, Flag, Kind, Message, Span, Story, Tone, Track,
        Value, Weight,
    },
};
use crate::record::Actor;

/// Adds to a story what happens at its last moment.
#[derive(Debug)]
pub(super) struct Draft {
    story: Story,
    /// Which lock service grants.
    lock_service: Option<Actor>,
    /// While flags and arrows are left out, the number of arrows before.
    leaves_out: Option<usize>,
}

impl Draft {
    pub(super) fn new(story: Story) -> Self {
        let services = story.tracks.iter().filter(|track| track.kind == Kind::LockService);
        let lock_service = services.map(|track| track.actor).next();
        Self { story, lock_service, leaves_out: None }
    }

    /// Begins another moment.
    pub(super) fn next_moment(&mut self, at_ms: u64) {
        self.story.moments.push(at_ms);
    }

    /// Leaves out the flags and arrows of this many events, which all belong to this moment.
    pub(super) fn leave_out(&mut self, count: usize) {
        if let Some(actor) = self.story.tracks.first().map(|track| track.actor) {
            self.flag(actor, format!("{count} events left out"), Tone::Odd);
        }
        self.leaves_out = Some(self.story.arrows.len());
    }

    /// Draws flags and arrows again.
    pub(super) fn draw_again(&mut self) {
        if let Some(count) = self.leaves_out.take() {
            self.story.arrows.truncate(count);
        }
    }

    /// Another server grants from now on.
    pub(super) fn promote(&mut self, actor: Actor) {
        self.lock_service = Some(actor);
    }

    pub(super) fn flag(&mut self, actor: Actor, text: impl Into<String>, tone: Tone) {
        self.add_flag(actor, text.into(), tone, Weight::Needed);
    }

    pub(super) fn wanted_flag(&mut self, actor: Actor, text: impl Into<String>, tone: Tone) {
        self.add_flag(actor, text.into(), tone, Weight::Wanted);
    }

    pub(super) fn optional_flag(&mut self, actor: Actor, text: impl Into<String>, tone: Tone) {
        self.add_flag(actor, text.into(), tone, Weight::Optional);
    }

    /// A client gets the lock. The lease of a client that was killed is over at the latest now.
    pub(super) fn grant(&mut self, client: Actor, token: Option<Token>) {
        let killed = self.story.tracks.iter().filter(|track| track.killed.is_some());
        for actor in killed.map(|track| track.actor).collect::<Vec<_>>() {
            self.end(actor, is_lease);
        }
        self.end(client, |content| content == Content::Wait);
        self.start(client, Content::Lease(token));
        if let Some(service) = self.lock_service {
            self.send([service, client], token, Message::Grant);
            let text = token.map_or("grants".to_owned(), |token| {
                format!("grants {}", caption::short_token(token))
            });
            self.flag(service, text, Tone::Plain);
        }
    }

    /// A client's lease has another token from now on.
    pub(super) fn reissue(&mut self, client: Actor, token: Option<Token>) {
        self.end(client, is_lease);
        self.start(client, Content::Lease(token));
    }

    /// The lock service ends a client's lease.
    pub(super) fn expire(&mut self, service: Actor, client: Option<Actor>, token: Option<Token>) {
        let text = token.map_or("lease expires".to_owned(), |token| {
            format!("{} expires", caption::short_token(token))
        });
        self.flag(service, text, Tone::Odd);
        if let Some(client) = client.filter(|client| self.cut_off(*client)) {
            self.send([service, client], token, Message::Expiry);
        }
    }

    /// The lock service has no leases any more.
    pub(super) fn cut_off_all(&mut self) {
        let clients = self.story.tracks.iter().filter(|track| track.kind == Kind::Client);
        for client in clients.map(|track| track.actor).collect::<Vec<_>>() {
            self.cut_off(client);
        }
    }

    /// The same, if this is the lock service.
    pub(super) fn cut_off_all_of(&mut self, service: Actor) {
        if self.lock_service == Some(service) {
            self.cut_off_all();
        }
    }

    /// Ends a client's lease, which the client does not know. Returns whether it had one.
    pub(super) fn cut_off(&mut self, client: Actor) -> bool {
        let bars = self.track(client).map(|track| track.bars.as_slice()).unwrap_or_default();
        let lease = bars.iter().rfind(|bar| bar.span.end.is_none() && is_lease(bar.content));
        let Some(Content::Lease(token)) = lease.map(|bar| bar.content) else { return false };
        self.end(client, is_lease);
        self.start(client, Content::Belief(token));
        true
    }

    /// The client knows that it has no lease any more.
    pub(super) fn end_lease(&mut self, client: Actor) {
        self.end(client, |content| matches!(content, Content::Lease(_) | Content::Belief(_)));
    }

    pub(super) fn start(&mut self, actor: Actor, content: Content) {
        let span = Span { start: self.now(), end: None };
        if let Some(track) = self.track(actor) {
            track.bars.push(Bar { span, content });
        }
    }

    /// Ends a track's last bar of a kind. Returns whether there was one.
    pub(super) fn end(&mut self, actor: Actor, is_it: impl Fn(Content) -> bool) -> bool {
        let now = self.now();
        let Some(track) = self.track(actor) else { return false };
        let open = |bar: &&mut Bar| bar.span.end.is_none() && is_it(bar.content);
        let bar = track.bars.iter_mut().rev().find(open);
        let was_open = bar.map(|bar| bar.span.end = Some(now)).is_some();
        // Only among events that are left out does anything begin and end at one moment.
        track.bars.retain(|bar| bar.span.end != Some(bar.span.start));
        was_open
    }

    pub(super) fn kill(&mut self, actor: Actor) {
        let now = self.now();
        if let Some(track) = self.track(actor) {
            track.killed = Some(now);
        }
    }

    /// Sends something from one track to another, which accepts it.
    pub(super) fn send(&mut self, [from, to]: [Actor; 2], token: Option<Token>, message: Message) {
        if [from, to].into_iter().all(|actor| self.story.track_of(actor).is_some()) {
            let at = self.now();
            let arrival = Arrival::Lands;
            self.story.arrows.push(Arrow { at, from, to, token, message, arrival });
        }
    }

    /// What becomes of what was sent last.
    pub(super) fn arrives(&mut self, arrival: Arrival) {
        if let Some(arrow) = self.story.arrows.last_mut() {
            arrow.arrival = arrival;
        }
    }

    /// What was sent last has arrived elsewhere, where no arrow goes.
    pub(super) fn divert(&mut self) {
        self.story.arrows.pop();
    }

    /// The network holds back a write, of the client whose lease has its token.
    pub(super) fn hold_back(&mut self, token: Option<Token>) {
        let has_it = |track: &&Track| {
            track.bars.iter().any(|bar| bar.content == Content::Lease(token) && token.is_some())
        };
        if let Some(sender) = self.story.tracks.iter().find(has_it).map(|track| track.actor) {
            self.send([sender, Actor::Network], token, Message::Write);
            self.wanted_flag(sender, caption::write(token), Tone::Plain);
        }
        self.start(Actor::Network, Content::HeldBack(token));
    }

    /// Whether what was sent last was a read.
    pub(super) fn last_was_read(&self) -> bool {
        self.story.arrows.last().is_some_and(|arrow| arrow.message == Message::Read)
    }

    /// Whether what was sent last destroys newer data.
    pub(super) fn last_destroys(&self) -> bool {
        let last = self.story.arrows.last();
        last.is_some_and(|arrow| arrow.arrival == Arrival::DestroysNewer)
    }

    /// A track has another value from now on.
    pub(super) fn store(&mut self, actor: Actor, text: String, token: Option<Token>, tone: Tone) {
        let since = self.now();
        let Some(track) = self.track(actor) else { return };
        let is_same =
            track.values.last().is_some_and(|last| last.text == text && last.token == token);
        if !is_same {
            track.values.retain(|value| value.since < since);
            track.values.push(Value { since, text, token, tone });
        }
    }

    /// Somebody reads a track's value; the first such value was there from the start.
    pub(super) fn show(&mut self, actor: Actor, text: String) {
        if let Some(track) = self.track(actor).filter(|track| track.values.is_empty()) {
            track.values.push(Value { since: 0, text, token: None, tone: Tone::Plain });
        }
    }

    /// A storage that checks tokens has seen one.
    pub(super) fn raise_fence(&mut self, actor: Actor, token: Option<Token>) {
        let since = self.now();
        let fence = self.track(actor).and_then(|track| track.fence.as_mut());
        if let (Some(levels), Some(token)) = (fence, token)
            && levels.last().is_none_or(|level| level.token < token)
        {
            levels.retain(|level| level.since < since);
            levels.push(FenceLevel { since, token });
        }
    }

    pub(super) fn finish(mut self) -> Story {
        for track in &mut self.story.tracks {
            if track.kind == Kind::Storage
                && track.values.first().is_none_or(|value| value.since > 0)
            {
                let text = "nothing written".to_owned();
                let value = Value { since: 0, text, token: None, tone: Tone::Plain };
                track.values.insert(0, value);
            }
        }
        self.story
    }

    fn now(&self) -> usize {
        self.story.moments.len() - 1
    }

    fn track(&mut self, actor: Actor) -> Option<&mut Track> {
        self.story.tracks.iter_mut().find(|track| track.actor == actor)
    }

    fn add_flag(&mut self, actor: Actor, text: String, tone: Tone, weight: Weight) {
        let leaves_out = self.leaves_out.is_some();
        let at = self.now();
        if let Some(track) = self.track(actor).filter(|_| !leaves_out) {
            track.flags.push(Flag { at, text, tone, weight });
        }
    }
}

fn is_lease(content: Content) -> bool {
    matches!(content, Content::Lease(_))
}
