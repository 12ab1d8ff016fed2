//! What happened in a run: the events, and how it ended.

mod outcome;

use std::time::Instant;

use fence::Token;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub use self::outcome::{Expected, Fact, Outcome, Outcomes};

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

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When, in milliseconds from the start of the run.
    pub at_ms: u64,
    /// In which of the worlds.
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

/// A world that a scenario is played in. In a record, it is its name.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Its name in the record.
    pub name: &'static str,
    /// What tells it from the others; what stands before the colon is enough to name it.
    pub title: &'static str,
    /// What becomes of the scenario's danger in it.
    pub danger: Danger,
    /// What its storage checks.
    pub checks: Checks,
    /// How it has to end to show what the scenario claims.
    pub end: &'static [(&'static str, Expected)],
}

/// What becomes of a scenario's danger in a world. What it is, each scenario says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Danger {
    /// It strikes: this is the unsafe twin.
    Strikes,
    /// It is averted.
    Averted,
}

/// What the storage of a world checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Nothing, or there is no storage.
    Nothing,
    /// The tokens that it is offered.
    Tokens,
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// The lock service.
    Redis,
    /// The lock service's replica.
    Replica,
    /// Several nodes of a lock service, or all; which, is told with each event.
    Nodes,
    /// The first node of a lock service that is several.
    NodeA,
    /// The second.
    NodeB,
    /// The third.
    NodeC,
    /// The fourth.
    NodeD,
    /// The fifth.
    NodeE,
    /// The client to whom something happens: it is paused, or killed.
    Client1,
    /// The client that comes meanwhile.
    Client2,
    /// One that comes still later.
    Client3,
    /// All others, a crowd.
    Others,
    /// What is between a client and the storage.
    Network,
    /// The storage.
    Storage,
}

/// Notes events as they happen.
pub struct Recorder {
    begun: Instant,
    world: World,
    events: Vec<Event>,
    show: Box<dyn FnMut(&Event)>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("events", &self.events).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts the clock, in the first world. Each event is shown as it is noted.
    pub fn start(world: World, show: impl FnMut(&Event) + 'static) -> Self {
        Self { begun: Instant::now(), world, events: Vec::new(), show: Box::new(show) }
    }

    /// What is noted from now on happens in this world.
    pub fn enter(&mut self, world: World) {
        self.world = world;
    }

    /// How long the run has gone on, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis().try_into().expect("a run is short")
    }

    /// Notes what an actor did.
    pub fn note(&mut self, actor: Actor, event: &str, token: Option<Token>) {
        self.note_with(actor, event, token, Map::new());
    }

    /// Notes what an actor did, and what else it said of it.
    pub fn note_with(
        &mut self,
        actor: Actor,
        event: &str,
        token: Option<Token>,
        details: Map<String, Value>,
    ) {
        let (at_ms, world) = (self.now_ms(), self.world);
        let event = Event { at_ms, world, actor, event: event.to_owned(), token, details };
        (self.show)(&event);
        self.events.push(event);
    }

    /// Whether this world's storage has accepted a higher token before.
    pub fn is_stale(&self, token: Option<Token>) -> bool {
        let accepted =
            |event: &&Event| event.actor == Actor::Storage && event.event.starts_with("accepted-");
        self.events().filter(accepted).any(|event| event.token > token)
    }

    /// Whether somebody else has acquired a lock with the same token in this world.
    pub fn is_anothers(&self, actor: Actor, token: Option<Token>) -> bool {
        let acquired = |event: &&Event| event.event == "acquired" && event.actor != actor;
        token.is_some() && self.events().filter(acquired).any(|event| event.token == token)
    }

    /// How many writes of others there were since this client last read, or wrote: none if it never did.
    pub fn unseen_by(&self, actor: Actor) -> u64 {
        let mut unseen = None;
        for event in self.events() {
            match event.event.as_str() {
                "read" | "written" if event.actor == actor => unseen = Some(0),
                "written" => unseen = unseen.map(|count| count + 1),
                _ => {}
            }
        }
        unseen.unwrap_or(0)
    }

    /// What has happened so far in this world.
    pub fn events(&self) -> impl Iterator<Item = &Event> + Clone {
        self.events.iter().filter(|event| event.world == self.world)
    }

    /// The events of all worlds, in the order of time.
    pub fn into_events(self) -> Vec<Event> {
        self.events
    }
}

impl Event {
    /// A number that the actor said of it.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.details.get(name).and_then(Value::as_u64)
    }

    /// A text that the actor said of it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.details.get(name).and_then(Value::as_str)
    }
}

impl Actor {
    /// The nodes of a lock service that is several.
    pub const NODES: [Self; 5] = [Self::NodeA, Self::NodeB, Self::NodeC, Self::NodeD, Self::NodeE];

    /// What it is called in a table's head.
    pub fn title(self) -> &'static str {
        match self {
            Self::Redis => "lock (Redis)",
            Self::Replica => "its replica",
            Self::Nodes => "the nodes",
            Self::NodeA => "node A",
            Self::NodeB => "node B",
            Self::NodeC => "node C",
            Self::NodeD => "node D",
            Self::NodeE => "node E",
            Self::Client1 => "client 1",
            Self::Client2 => "client 2",
            Self::Client3 => "client 3",
            Self::Others => "the others",
            Self::Network => "network",
            Self::Storage => "storage",
        }
    }
}

/// A scenario's worlds differ in their names.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Serialize for World {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
