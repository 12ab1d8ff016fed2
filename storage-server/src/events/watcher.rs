//! One client that watches: what it is sent next.

use std::future::pending;

use bytes::Bytes;
use tokio::sync::watch;

use super::{
    EventId,
    ring::{Place, Ring},
};
use crate::access::{Caller, identity::Permission};

/// A client's place in the stream of decisions. It keeps none of them, so a slow client costs as little as
/// a fast one. An event reports what a slow client has missed.
#[derive(Debug)]
pub(crate) struct Watcher {
    ring: watch::Receiver<Ring>,
    place: Place,
    /// Whether the stream goes on where it was cut off. `None` once the first event has said so.
    begins: Option<bool>,
}

impl Watcher {
    pub(super) fn new(ring: watch::Receiver<Ring>, place: Place, resumes: bool) -> Self {
        Self { ring, place, begins: Some(resumes && place.missed.is_none()) }
    }

    /// Waits for the next event that the caller may see, and returns its text.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no event is lost.
    pub(crate) async fn next(&mut self, caller: &Caller) -> Bytes {
        loop {
            if let Some(text) = self.news(caller) {
                return text;
            }
            if self.ring.changed().await.is_err() {
                // The server ends.
                return pending().await;
            }
        }
    }

    /// A sign of life. It also brings the client the id of the last event, which it may not have seen:
    /// after a cut, it need not look for its place among events that it may not see.
    pub(crate) fn alive(&self) -> Bytes {
        format!(": alive\nid: {}\n\n", self.id()).into()
    }

    fn news(&mut self, caller: &Caller) -> Option<Bytes> {
        if let Some(resumed) = self.begins.take() {
            // With an id, a client whose connection breaks now would be resumed after it, and never learn that
            // it has missed events. The next event reports that, and brings the id.
            let id = match self.place.missed {
                None => format!("id: {}\n", self.id()),
                Some(_) => String::new(),
            };
            let data = format!("{{\"resumed\":{resumed}}}");
            return Some(format!("retry: 1000\n{id}event: begin\ndata: {data}\n\n").into());
        }
        if self.place.missed.is_some() {
            return self.missed();
        }
        let ring = self.ring.borrow_and_update();
        loop {
            match ring.get(self.place.next) {
                Ok(None) => return None,
                Ok(Some(kept)) => {
                    self.place.next += 1;
                    self.place.last = kept.event;
                    if caller.may(Permission::Read, &kept.resource) {
                        return Some(kept.text.clone());
                    }
                }
                Err(oldest) => {
                    drop(ring);
                    self.place = oldest;
                    return self.missed();
                }
            }
        }
    }

    /// The event that reports missed events, if there are any.
    fn missed(&mut self) -> Option<Bytes> {
        let reason = self.place.missed.take()?.slug();
        let id = self.id();
        Some(format!("id: {id}\nevent: missed\ndata: {{\"reason\":\"{reason}\"}}\n\n").into())
    }

    fn id(&self) -> EventId {
        EventId { run: self.place.run, event: self.place.last }
    }
}
