//! Records events as they happen.

use std::{cell::RefCell, collections::HashSet, fmt, mem, rc::Rc, time::Instant};

use fence::Token;

use super::{
    actor::Actor,
    event::{Event, EventKind},
    wire::Wire,
};

/// How many bytes of what went over the wire a record keeps, as JSON. Then a page of it stays small.
const MOST_WIRE_BYTES: usize = 100_000;

/// Records events as they happen. Clones add to the same record.
#[derive(Clone)]
pub struct Recorder(Rc<RefCell<Run>>);

struct Run {
    started: Instant,
    world: &'static str,
    events: Vec<Event>,
    /// The SHA-1 of the scripts that the record has.
    scripts: HashSet<String>,
    wire_bytes: usize,
    show: Box<dyn FnMut(&Event)>,
}

impl Recorder {
    /// Starts the clock. Each event is shown when it is recorded.
    pub fn start(show: impl FnMut(&Event) + 'static) -> Self {
        let (started, show) = (Instant::now(), Box::new(show));
        let (events, scripts) = (Vec::new(), HashSet::new());
        Self(Rc::new(RefCell::new(Run {
            started,
            world: "",
            events,
            scripts,
            wire_bytes: 0,
            show,
        })))
    }

    /// Enters the world of this name: all later events happen in it.
    pub fn enter(&self, world: &'static str) {
        self.0.borrow_mut().world = world;
    }

    /// Records an event.
    pub fn record(&self, actor: Actor, token: impl Into<Option<Token>>, kind: EventKind) -> Event {
        self.record_with_wire(actor, token, kind, Wire::default())
    }

    /// Records an event of a client, with what went over the wire.
    pub fn record_with_wire(
        &self,
        actor: Actor,
        token: impl Into<Option<Token>>,
        kind: EventKind,
        wire: Wire,
    ) -> Event {
        let run = &mut *self.0.borrow_mut();
        let wire = run.kept(wire);
        let at_ms = run.started.elapsed().as_millis().try_into().expect("a run is short");
        let event =
            Event { at_ms, world: run.world.to_owned(), actor, token: token.into(), kind, wire };
        (run.show)(&event);
        run.events.push(event.clone());
        event
    }

    /// The events of the present world so far.
    pub fn events(&self) -> Vec<Event> {
        let run = self.0.borrow();
        run.events.iter().filter(|event| event.world == run.world).cloned().collect()
    }

    /// Takes the events of all worlds out of the record.
    pub fn take_events(&self) -> Vec<Event> {
        mem::take(&mut self.0.borrow_mut().events)
    }
}

impl Run {
    /// What the record keeps of what went over the wire: each script once, and no more than its limit allows.
    fn kept(&mut self, mut wire: Wire) -> Wire {
        wire.scripts.retain(|hash, _| !self.scripts.contains(hash));
        let bytes = serde_json::to_string(&wire).expect("it is plain JSON").len();
        if self.wire_bytes + bytes > MOST_WIRE_BYTES {
            wire.omit();
        } else if !wire.is_empty() {
            self.wire_bytes += bytes;
            self.scripts.extend(wire.scripts.keys().cloned());
        }
        wire
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("events", &self.0.borrow().events).finish_non_exhaustive()
    }
}
