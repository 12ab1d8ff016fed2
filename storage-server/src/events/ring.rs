//! The last decisions of the server.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde::Serialize;

use super::{Decision, EventId};

/// How many decisions are kept. Each has at most 2 KiB.
const MAX_KEPT: usize = 4096;
/// How long decisions are kept without a client that watches: it may be about to connect again.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The last decisions, the oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    /// Names the run of the server.
    run: u64,
    kept: VecDeque<Kept>,
    /// The number of dropped events.
    dropped: u64,
    /// The id of the last dropped event.
    before: u64,
    /// Since when a decision has found no client that watches.
    unwatched_since: Option<Instant>,
}

/// A decision as it is sent.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) event: u64,
    pub(super) resource: String,
    pub(super) text: Bytes,
}

/// Where a client is in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) run: u64,
    /// The number of the next event.
    pub(super) next: u64,
    /// The event before it.
    pub(super) last: u64,
    /// Why events before it are missing, if some are.
    pub(super) missed: Option<Missed>,
}

/// Why a client misses events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// It read more slowly than the server decided.
    Slow,
    /// The event that it has seen last is not kept any more.
    TooOld,
    /// It was connected to another run: the server was restarted, or another one has its address.
    Restarted,
}

impl Missed {
    pub(super) fn slug(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::TooOld => "too-old",
            Self::Restarted => "restarted",
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            run: fastrand::u64(..),
            kept: VecDeque::new(),
            dropped: 0,
            before: fastrand::u64(..),
            unwatched_since: None,
        }
    }
}

impl Ring {
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// Adds decisions, and drops the oldest ones that there is no place for.
    pub(super) fn keep(&mut self, decisions: Vec<Kept>) {
        self.kept.extend(decisions);
        while self.kept.len() > MAX_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.before = oldest.event;
            self.dropped += 1;
        }
    }

    /// Notes how many clients watch. Returns whether decisions must be kept. Otherwise, forgets all
    /// of them: a client that has seen the last one misses those that are not kept now.
    pub(super) fn note_watchers(&mut self, watchers: usize, now: Instant) -> bool {
        if watchers > 0 {
            self.unwatched_since = None;
            return true;
        }
        let since = *self.unwatched_since.get_or_insert(now);
        let must_be_kept = now.duration_since(since) < KEPT_FOR;
        if !must_be_kept {
            self.dropped += self.kept.len() as u64;
            self.kept = VecDeque::new();
            self.before = fastrand::u64(..);
        }
        must_be_kept
    }

    /// The place after an event, or at the end. If the event is unknown, that of the oldest decision.
    pub(super) fn place(&self, after: Option<EventId>) -> Place {
        let oldest = Place { run: self.run, next: self.dropped, last: self.before, missed: None };
        let end = || Place {
            next: self.dropped + self.kept.len() as u64,
            last: self.kept.back().map_or(self.before, |kept| kept.event),
            ..oldest
        };
        let Some(EventId { run, event }) = after else { return end() };
        if run != self.run {
            return Place { missed: Some(Missed::Restarted), ..oldest };
        }
        if event == self.before {
            return oldest;
        }
        // Most clients were cut off only just now.
        match self.kept.iter().rposition(|kept| kept.event == event) {
            Some(index) => Place { next: self.dropped + index as u64 + 1, last: event, ..oldest },
            None => Place { missed: Some(Missed::TooOld), ..oldest },
        }
    }

    /// The event with this number. `None` if it has not happened yet.
    ///
    /// # Errors
    /// If it was dropped, the place of the oldest that is kept.
    pub(super) fn get(&self, number: u64) -> Result<Option<&Kept>, Place> {
        match number.checked_sub(self.dropped) {
            Some(index) => Ok(usize::try_from(index).ok().and_then(|index| self.kept.get(index))),
            None => Err(Place {
                run: self.run,
                next: self.dropped,
                last: self.before,
                missed: Some(Missed::Slow),
            }),
        }
    }
}

impl Kept {
    pub(super) fn new(run: u64, time: &str, decision: &Decision<'_>) -> Self {
        #[derive(Serialize)]
        struct Timed<'a> {
            time: &'a str,
            #[serde(flatten)]
            decision: &'a Decision<'a>,
        }

        let id = EventId { run, event: fastrand::u64(..) };
        // JSON has no line break, which would end the event.
        let data = serde_json::to_string(&Timed { time, decision }).expect("it is JSON");
        Self {
            event: id.event,
            resource: decision.resource.to_owned(),
            text: format!("id: {id}\ndata: {data}\n\n").into(),
        }
    }
}

#[cfg(test)]
mod tests;
