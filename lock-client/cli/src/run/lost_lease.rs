//! What happens to the child of `run` when its lease is lost, and when.
//!
//! The child gets SIGTERM so early that SIGKILL, after the grace, still comes before the lease
//! ends:
//!
//! ```text
//! granted                     SIGTERM          SIGKILL  deadline  end of the ttl
//! |------------------------------|--- grace ------|-margin-|--------|
//! ```

use std::time::Duration;

use lock_client::Moment;
use rustix::process::Signal;

use super::{events::Reason, on_lost::OnLost};

/// The longest pause between two checks. Timers stand still while the machine is suspended; the
/// deadline does not.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// The shortest pause: the resolution of a timer.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// How long before the deadline SIGKILL is sent, at most. On a busy machine it takes time to send
/// it, and to end the child.
const MAX_MARGIN: Duration = Duration::from_secs(1);
/// The margin is at most this part of the ttl.
const MARGIN_OF_TTL: u32 = 20;

/// By how much the deadline of the last renewal may be too early, because a ttl has whole
/// milliseconds.
const LAST_RENEWAL_LOSS: Duration = Duration::from_millis(2);

/// What to do to the child now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The lease is lost, for this reason.
    Lost(Reason, Response),
    /// The grace is over. Kill the child, and the processes that it has started.
    Kill,
}

/// What to do to the child when its lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// Send SIGTERM or SIGKILL to it, and to the processes that it has started.
    End(Signal),
    /// Send a signal to it alone.
    Signal(Signal),
    /// Let it continue.
    Nothing,
}

/// Watches a lease, and decides what happens to the child.
#[derive(Debug)]
pub(super) struct LeaseWatch {
    on_lost: OnLost,
    grace: Duration,
    margin: Duration,
    /// The last known deadline. A lost lease has none.
    deadline: Moment,
    /// The deadline that no renewal extends, if there is one.
    last_deadline: Option<Moment>,
    /// When the loss was noticed, and why the lease was lost.
    lost: Option<(Moment, Reason)>,
    killed: bool,
}

impl LeaseWatch {
    /// Watches a lease that is granted for a ttl each time.
    pub(super) fn new(
        on_lost: OnLost,
        grace: Duration,
        ttl: Duration,
        remaining: Duration,
    ) -> Self {
        Self {
            on_lost,
            grace,
            margin: (ttl / MARGIN_OF_TTL).min(MAX_MARGIN),
            deadline: Moment::now() + remaining,
            last_deadline: None,
            lost: None,
            killed: false,
        }
    }

    /// Lets the lease be extended by this much, and no further.
    pub(super) fn until(mut self, extension: Duration) -> Self {
        self.last_deadline = Some(self.deadline + extension.saturating_sub(LAST_RENEWAL_LOSS));
        self
    }

    /// Why the lease is lost, if `next_action` has found that it is.
    pub(super) fn lost(&self) -> Option<Reason> {
        self.lost.map(|(_, reason)| reason)
    }

    /// Returns the next action, given the remaining time of the lease. Call it until there is none.
    pub(super) fn next_action(&mut self, remaining: Duration) -> Option<Action> {
        if !remaining.is_zero() {
            let deadline = Moment::now() + remaining;
            self.deadline = self.last_deadline.map_or(deadline, |last| last.min(deadline));
        }
        let left = self.deadline.remaining();
        let Some((lost_at, _)) = self.lost else {
            let too_late = left <= self.notice();
            let reason = self.reason_if_ended(remaining);
            let reason = reason.or_else(|| too_late.then(|| self.reason_if_too_late()))?;
            self.lost = Some((Moment::now(), reason));
            return Some(Action::Lost(reason, self.response(left)));
        };
        let is_over = left <= self.margin || (lost_at + self.grace).has_passed();
        if self.on_lost == OnLost::Terminate && !self.killed && is_over {
            self.killed = true;
            return Some(Action::Kill);
        }
        None
    }

    fn response(&mut self, left: Duration) -> Response {
        match self.on_lost {
            // There is no time left for SIGTERM.
            OnLost::Terminate if left <= self.margin => {
                self.killed = true;
                Response::End(Signal::KILL)
            }
            OnLost::Terminate => Response::End(Signal::TERM),
            OnLost::Signal(signal) => Response::Signal(signal),
            OnLost::Continue => Response::Nothing,
        }
    }

    /// Why the lease has ended, if nothing of it remains.
    fn reason_if_ended(&self, remaining: Duration) -> Option<Reason> {
        if !remaining.is_zero() {
            return None;
        }
        Some(if self.deadline.has_passed() { Reason::Expired } else { Reason::NotOurs })
    }

    fn reason_if_too_late(&self) -> Reason {
        match self.last_deadline {
            Some(last) if self.deadline == last => Reason::MaxHold,
            _ => Reason::NotRenewed,
        }
    }

    /// How long before the deadline the child gets its first signal.
    fn notice(&self) -> Duration {
        match self.on_lost {
            OnLost::Terminate | OnLost::Signal(_) => self.grace + self.margin,
            OnLost::Continue => Duration::ZERO,
        }
    }

    /// How long to pause until the next check, unless the lease is lost meanwhile.
    pub(super) fn pause(&self) -> Duration {
        let left = self.deadline.remaining();
        let until_next_action = match self.lost {
            None => left.saturating_sub(self.notice()),
            Some((lost_at, _)) if self.on_lost == OnLost::Terminate && !self.killed => {
                left.saturating_sub(self.margin).min((lost_at + self.grace).remaining())
            }
            Some(_) => Duration::MAX,
        };
        until_next_action.clamp(MIN_PAUSE, MAX_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const TTL: Duration = Duration::from_secs(30);

    fn watch(on_lost: OnLost) -> LeaseWatch {
        LeaseWatch::new(on_lost, 5 * SECOND, TTL, 29 * SECOND)
    }

    #[test]
    fn renewed_lease_causes_no_action() {
        for on_lost in [OnLost::Terminate, OnLost::Signal(Signal::USR1), OnLost::Continue] {
            let mut watch = watch(on_lost);
            for remaining in [29, 20, 7, 29] {
                assert_eq!(watch.next_action(remaining * SECOND), None);
            }
            assert_eq!(watch.lost(), None);
        }
    }

    #[test]
    fn child_is_terminated_so_early_that_its_grace_ends_with_the_lease() {
        let mut watch = watch(OnLost::Terminate);
        let terminate = Action::Lost(Reason::NotRenewed, Response::End(Signal::TERM));
        assert_eq!(watch.next_action(5 * SECOND + MAX_MARGIN), Some(terminate));
        assert_eq!(watch.next_action(2 * MAX_MARGIN), None);
        assert_eq!(watch.next_action(MAX_MARGIN), Some(Action::Kill));
        assert_eq!(watch.next_action(Duration::ZERO), None, "once is enough");
    }

    #[test]
    fn lock_of_another_client_terminates_at_once_and_kills_at_the_old_deadline() {
        let mut watch = watch(OnLost::Terminate);
        watch.next_action(2 * MAX_MARGIN + 5 * SECOND);
        let terminate = Action::Lost(Reason::NotOurs, Response::End(Signal::TERM));
        assert_eq!(watch.next_action(Duration::ZERO), Some(terminate));
        assert_eq!(watch.next_action(Duration::ZERO), None);
        watch.deadline = Moment::now();
        assert_eq!(watch.next_action(Duration::ZERO), Some(Action::Kill));
    }

    #[test]
    fn terminated_child_is_killed_after_its_grace_though_a_renewal_succeeded() {
        let mut watch = LeaseWatch::new(OnLost::Terminate, Duration::ZERO, TTL, 29 * SECOND);
        let terminate = Action::Lost(Reason::NotOurs, Response::End(Signal::TERM));
        assert_eq!(watch.next_action(Duration::ZERO), Some(terminate));
        assert_eq!(watch.next_action(29 * SECOND), Some(Action::Kill));
    }

    #[test]
    fn child_is_killed_at_once_past_the_deadline() {
        let mut watch = watch(OnLost::Terminate);
        watch.deadline = Moment::now();
        let kill = Action::Lost(Reason::Expired, Response::End(Signal::KILL));
        assert_eq!(watch.next_action(Duration::ZERO), Some(kill));
        assert_eq!(watch.next_action(Duration::ZERO), None);
    }

    #[test]
    fn lease_that_may_not_be_extended_further_ends_with_its_own_reason() {
        let mut watch = watch(OnLost::Terminate).until(10 * SECOND);
        assert_eq!(watch.next_action(29 * SECOND), None);
        watch.last_deadline = Some(Moment::now() + 5 * SECOND);
        let terminate = Action::Lost(Reason::MaxHold, Response::End(Signal::TERM));
        assert_eq!(watch.next_action(29 * SECOND), Some(terminate));
    }

    #[test]
    fn single_signal_is_sent_as_early_as_sigterm_and_nothing_after_it() {
        let mut watch = watch(OnLost::Signal(Signal::USR1));
        let signal = Action::Lost(Reason::NotRenewed, Response::Signal(Signal::USR1));
        assert_eq!(watch.next_action(5 * SECOND + MAX_MARGIN), Some(signal));
        watch.deadline = Moment::now();
        assert_eq!(watch.next_action(Duration::ZERO), None);
    }

    #[test]
    fn lease_of_a_child_that_continues_is_lost_at_the_deadline_and_not_before() {
        let mut watch = watch(OnLost::Continue);
        assert_eq!(watch.next_action(SECOND), None);
        watch.deadline = Moment::now();
        assert_eq!(
            watch.next_action(Duration::ZERO),
            Some(Action::Lost(Reason::Expired, Response::Nothing))
        );
        assert_eq!(watch.next_action(Duration::ZERO), None);
    }
}
