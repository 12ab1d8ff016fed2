//! The requests of a connection, and since when the server waits for its client.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// How long a connection with an unread answer stays open for its other requests, so that their clients
/// learn what was decided.
const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

/// The requests that a connection has in flight. The accept loop reads it to find the connections
/// whose clients keep the server waiting.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    requests: Vec<Progress>,
    next_id: u64,
    /// When the last request ended, or the connection was accepted.
    idle_since: Instant,
    has_served: bool,
    /// The connection is being closed: a request that comes now must not begin.
    is_closed: bool,
    /// Is cancelled when the connection shall end once its requests are answered.
    closing: CancellationToken,
}

#[derive(Debug)]
struct Progress {
    id: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no answer yet.
    Undecided,
    /// At this moment, the client could last receive a further part of the answer.
    UnreadSince(Instant),
}

/// A connection without a request in flight.
pub(super) struct Idle {
    pub(super) since: Instant,
    /// Whether it has had a request.
    pub(super) has_served: bool,
}

/// Why the server closes a connection whose client keeps it waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// No whole request has come since the connection was accepted.
    Silent,
    /// All requests were answered, and no other has come.
    Idle,
    /// An answer is not read.
    Unread,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            requests: Vec::new(),
            next_id: 0,
            idle_since: now,
            has_served: false,
            is_closed: false,
            closing: CancellationToken::new(),
        })))
    }

    /// Begins a request, which is in flight until the result is dropped. `None` if the connection
    /// is being closed.
    pub(super) fn begin(self: &Arc<Self>) -> Option<InFlight> {
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.has_served = true;
        state.requests.push(Progress { id, stage: Stage::Undecided });
        Some(InFlight { activity: self.clone(), id })
    }

    /// Is cancelled when the connection shall end once its requests are answered.
    pub(super) fn closing(&self) -> CancellationToken {
        self.state().closing.clone()
    }

    /// Since when there is no request in flight; `None` if there is one.
    pub(super) fn idle(&self) -> Option<Idle> {
        let state = self.state();
        let idle = Idle { since: state.idle_since, has_served: state.has_served };
        state.requests.is_empty().then_some(idle)
    }

    /// Lets no further request begin if the connection has been idle since this moment. Returns
    /// whether it has.
    pub(super) fn close_if_idle(&self, since: Instant) -> bool {
        let mut state = self.state();
        let is_idle = state.requests.is_empty() && state.idle_since == since;
        state.is_closed |= is_idle;
        is_idle
    }

    /// Lets no further request begin if the client has kept the server waiting for too long.
    pub(super) fn close_if_overdue(
        &self,
        now: Instant,
        idle_timeout: Duration,
        unread_timeout: Duration,
    ) -> Option<Overdue> {
        let mut state = self.state();
        let is_idle = state.requests.is_empty();
        let unread_for = state.requests.iter().filter_map(|request| match request.stage {
            Stage::UnreadSince(since) => Some(now.duration_since(since)),
            Stage::Undecided => None,
        });
        let unread_for = unread_for.max();
        let is_undecided = state.requests.iter().any(|it| it.stage == Stage::Undecided);
        let overdue = if is_idle && now.duration_since(state.idle_since) >= idle_timeout {
            if state.has_served { Overdue::Idle } else { Overdue::Silent }
        } else if let Some(waited) = unread_for.filter(|waited| *waited >= unread_timeout) {
            state.is_closed = true;
            if is_undecided && waited < unread_timeout + DECISION_TIMEOUT {
                // The unread answer may be read by then. The connection would stay open, and reject all
                // requests.
                state.closing.cancel();
                return None;
            }
            Overdue::Unread
        } else {
            return None;
        };
        state.is_closed = true;
        Some(overdue)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while it is held")
    }
}

/// A request in flight: from its head until its answer was handed over, or given up.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    id: u64,
}

impl InFlight {
    /// Lets no further request begin on the connection, which ends once all are answered.
    pub(super) fn close_connection(&self) {
        let mut state = self.activity.state();
        state.is_closed = true;
        state.closing.cancel();
    }

    /// Notes that the client can receive a further part of the answer.
    pub(super) fn note_progress(&self) {
        let mut state = self.activity.state();
        let request = state.requests.iter_mut().find(|request| request.id == self.id);
        request.expect("it is in flight").stage = Stage::UnreadSince(Instant::now());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.requests.retain(|request| request.id != self.id);
        state.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(20);
    const UNREAD: Duration = Duration::from_secs(10);

    fn overdue_after(activity: &Activity, waited: Duration) -> Option<Overdue> {
        activity.close_if_overdue(Instant::now() + waited, IDLE, UNREAD)
    }

    #[test]
    fn connection_is_overdue_while_its_client_keeps_the_server_waiting() {
        let activity = Activity::new(Instant::now());
        assert_eq!(overdue_after(&activity, IDLE / 2), None);
        assert_eq!(overdue_after(&activity, IDLE), Some(Overdue::Silent));

        // The server works on a request for as long as that takes.
        let activity = Activity::new(Instant::now());
        let request = activity.begin().unwrap();
        assert_eq!(overdue_after(&activity, 100 * IDLE), None);
        request.note_progress();
        assert_eq!(overdue_after(&activity, UNREAD / 2), None);
        assert_eq!(overdue_after(&activity, UNREAD), Some(Overdue::Unread));

        let activity = Activity::new(Instant::now());
        drop(activity.begin());
        assert_eq!(overdue_after(&activity, IDLE), Some(Overdue::Idle));
    }

    #[test]
    fn one_unread_answer_is_overdue_among_others_that_are_read() {
        let activity = Activity::new(Instant::now());
        let unread = activity.begin().unwrap();
        unread.note_progress();
        std::thread::sleep(Duration::from_millis(2));
        let read = activity.begin().unwrap();
        read.note_progress();
        let just_before = UNREAD - Duration::from_millis(1);
        assert_eq!(overdue_after(&activity, just_before), Some(Overdue::Unread));
        // The control: without the unread one, the same moment is too early.
        drop(unread);
        assert_eq!(overdue_after(&activity, just_before), None);
    }

    /// Otherwise its client would not learn what was decided.
    #[test]
    fn undecided_request_keeps_a_connection_with_an_unread_answer_open_for_a_while() {
        let activity = Activity::new(Instant::now());
        let unread = activity.begin().unwrap();
        unread.note_progress();
        let undecided = activity.begin().unwrap();
        assert_eq!(overdue_after(&activity, UNREAD), None);
        assert!(activity.begin().is_none(), "another one does not begin");
        assert!(activity.closing().is_cancelled(), "the client learns it");
        assert_eq!(overdue_after(&activity, UNREAD + DECISION_TIMEOUT), Some(Overdue::Unread));
        // The control: without the undecided one, it ends at once.
        drop(undecided);
        assert_eq!(overdue_after(&activity, UNREAD), Some(Overdue::Unread));
    }

    /// Otherwise an operation could be queued after its connection was given up.
    #[test]
    fn no_request_begins_on_a_connection_that_is_being_closed() {
        let activity = Activity::new(Instant::now());
        let since = activity.idle().unwrap().since;
        let request = activity.begin().unwrap();
        assert!(!activity.close_if_idle(since));
        drop(request);
        assert!(!activity.close_if_idle(since));
        assert!(activity.begin().is_some());
        assert!(activity.close_if_idle(activity.idle().unwrap().since));
        assert!(activity.begin().is_none());
    }
}
