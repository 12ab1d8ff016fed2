//! Records events as they happen.

use std::{cell::RefCell, fmt, mem, rc::Rc, time::Instant};

use fence::Token;

use super::{
    actor::Actor,
    event::{Event, EventKind},
};

/// Records events as they happen. Clones add to the same record.
#[derive(Clone)]
pub struct Recorder(Rc<RefCell<Run>>);

struct Run {
    started: Instant,
    world: &'static str,
    events: Vec<Event>,
    show: Box<dyn FnMut(&Event)>,
}

impl Recorder {
    /// Starts the clock. Each event is shown when it is recorded.
    pub fn start(show: impl FnMut(&Event) + 'static) -> Self {
        let (started, show) = (Instant::now(), Box::new(show));
        Self(Rc::new(RefCell::new(Run { started, world: "", events: Vec::new(), show })))
    }

    /// Enters the world of this name: all later events happen in it.
    pub fn enter(&self, world: &'static str) {
        self.0.borrow_mut().world = world;
    }

    /// Records an event.
    pub fn record(&self, actor: Actor, token: impl Into<Option<Token>>, kind: EventKind) -> Event {
        let run = &mut *self.0.borrow_mut();
        let at_ms = run.started.elapsed().as_millis().try_into().expect("a run is short");
        let event = Event { at_ms, world: run.world.to_owned(), actor, token: token.into(), kind };
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

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("events", &self.0.borrow().events).finish_non_exhaustive()
    }
}
