//! What happened in a run: the events, and how it ended.

use std::{collections::HashMap, time::Instant};

use fence::Token;
use serde::Serialize;
use serde_json::{Map, Value};

/// The record of a run of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Whether the run showed what the scenario claims.
    pub holds: bool,
    /// What happened, in the order of time.
    pub events: Vec<Event>,
    /// How it ended.
    pub outcome: Outcomes,
}

/// How a run ended in both worlds.
#[derive(Clone, Debug, Serialize)]
pub struct Outcomes {
    /// With the fence.
    pub fenced: Outcome,
    /// Without it.
    pub unfenced: Outcome,
}

/// How a run ended in one world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The value that the storage has in the end.
    pub value: Option<String>,
    /// The token that it was written with.
    pub token: Option<Token>,
    /// Writes accepted with a token below one that the storage had accepted before.
    pub stale_writes_accepted: u32,
    /// Writes refused because of their token.
    pub stale_writes_refused: u32,
    /// Writes of others that were overwritten by a client that had not seen them.
    pub updates_lost: u32,
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When, in milliseconds from the start of the run.
    pub at_ms: u64,
    /// In which of the two worlds.
    pub world: World,
    /// Who did it, or to whom it was done.
    pub actor: Actor,
    /// What.
    pub event: String,
    /// The token that it was done with, if any.
    pub token: Option<Token>,
    /// What else the actor said of it.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

/// With the fence, or without: the unsafe twin. What that means exactly, each scenario says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// The world in which the scenario's danger is averted.
    Fenced,
    /// The world in which it strikes.
    Unfenced,
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// The lock service.
    Redis,
    /// The client that is paused.
    Client1,
    /// The client that comes meanwhile.
    Client2,
    /// The storage.
    Storage,
}

/// Notes events as they happen.
pub struct Recorder {
    begun: Instant,
    events: Vec<Event>,
    show: Box<dyn FnMut(&Event)>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("events", &self.events).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts the clock. Each event is shown as it is noted.
    pub fn start(show: impl FnMut(&Event) + 'static) -> Self {
        Self { begun: Instant::now(), events: Vec::new(), show: Box::new(show) }
    }

    /// Notes what an actor did.
    pub fn note(&mut self, world: World, actor: Actor, event: &str, token: Option<Token>) {
        self.note_with(world, actor, event, token, Map::new());
    }

    /// Notes what an actor did, and what else it said of it.
    pub fn note_with(
        &mut self,
        world: World,
        actor: Actor,
        event: &str,
        token: Option<Token>,
        details: Map<String, Value>,
    ) {
        let at_ms = self.begun.elapsed().as_millis().try_into().expect("a run is short");
        let event = Event { at_ms, world, actor, event: event.to_owned(), token, details };
        (self.show)(&event);
        self.events.push(event);
    }

    /// Whether the storage of a world has accepted a higher token before.
    pub fn is_stale(&self, world: World, token: Option<Token>) -> bool {
        let accepted =
            |event: &&Event| event.actor == Actor::Storage && event.event.starts_with("accepted-");
        self.events_of(world).filter(accepted).any(|event| event.token > token)
    }

    /// What has happened so far in one world.
    pub fn events_of(&self, world: World) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.world == world)
    }

    /// The events, in the order of time.
    pub fn into_events(self) -> Vec<Event> {
        self.events
    }
}

impl Outcome {
    /// The end with this value, written with this token, where nothing was refused or lost.
    pub fn ending_with(value: &str, token: u64) -> Self {
        Self { value: Some(value.to_owned()), token: Token::new(token).ok(), ..Self::default() }
    }

    /// What the events of one world come to, the storage having this value in the end; its token is
    /// that of the last write that a client tells of.
    pub fn of<'a>(events: impl Iterator<Item = &'a Event>, value: Option<String>) -> Self {
        let mut outcome = Self { value, ..Self::default() };
        // Who has read and not seen how many writes of others since.
        let mut unseen: HashMap<Actor, u32> = HashMap::new();
        for event in events {
            match (event.actor, event.event.as_str()) {
                (Actor::Storage, "accepted-stale-write") => outcome.stale_writes_accepted += 1,
                (Actor::Storage, "refused") => outcome.stale_writes_refused += 1,
                (reader, "read") => {
                    unseen.insert(reader, 0);
                }
                (writer, "written") => {
                    outcome.token = event.token;
                    outcome.updates_lost += unseen.insert(writer, 0).unwrap_or_default();
                    for (_, count) in unseen.iter_mut().filter(|(actor, _)| **actor != writer) {
                        *count += 1;
                    }
                }
                _ => {}
            }
        }
        outcome
    }
}
