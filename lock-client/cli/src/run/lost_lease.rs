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

use clap::ValueEnum;
use lock_client::Moment;
use rustix::process::Signal;

use super::reporter::Reason;

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

/// By how much a deadline may be too early, because a ttl has whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(5);

/// The time between SIGTERM and SIGKILL without `--kill-after`.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// What happens to the child when its lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// SIGTERM, and SIGKILL after --kill-after
    Term,
    /// Nothing
    Continue,
}

/// What to do to the child now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The lease is lost, for this reason. Send this signal to the child, and to the processes that it
    /// has started.
    Lost(Reason, Option<Signal>),
    /// The grace is over. Kill them.
    Kill,
}

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

    /// Lets the lease be extended until this moment, and no further.
    pub(super) fn until(self, last_deadline: Option<Moment>) -> Self {
        Self { last_deadline, ..self }
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
            return Some(Action::Lost(reason, self.first_signal(left)));
        };
        let is_over = left <= self.margin || (lost_at + self.grace).has_passed();
        if self.on_lost == OnLost::Term && !self.killed && is_over {
            self.killed = true;
            return Some(Action::Kill);
        }
        None
    }

    fn first_signal(&mut self, left: Duration) -> Option<Signal> {
        let terminates = self.on_lost == OnLost::Term;
        // Then there is no time left for SIGTERM.
        self.killed = terminates && left <= self.margin;
        terminates.then_some(if self.killed { Signal::KILL } else { Signal::TERM })
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
            Some(last) if self.deadline + ROUNDING >= last => Reason::MaxHold,
            _ => Reason::NotRenewed,
        }
    }

    /// How long before the deadline the child gets its first signal.
    fn notice(&self) -> Duration {
        match self.on_lost {
            OnLost::Term => self.grace + self.margin,
            OnLost::Continue => Duration::ZERO,
        }
    }

    /// How long to pause until the next check, unless the lease is lost meanwhile.
    pub(super) fn pause(&self) -> Duration {
        let left = self.deadline.remaining();
        let until_next_action = match self.lost {
            None => left.saturating_sub(self.notice()),
            Some((lost_at, _)) if self.on_lost == OnLost::Term && !self.killed => {
                left.saturating_sub(self.margin).min((lost_at + self.grace).remaining())
            }
            Some(_) => Duration::MAX,
        };
        until_next_action.clamp(MIN_PAUSE, MAX_PAUSE)
    }
}

/// Returns the time between SIGTERM and SIGKILL.
///
/// SIGKILL must come before the lease ends, so SIGTERM is sent when this much of the lease remains.
/// The renewal starts when two thirds of the ttl remain; the time between is for its retries.
pub(super) fn grace(kill_after: Option<Duration>, ttl: Duration) -> Result<Duration, String> {
    let Some(grace) = kill_after else {
        return Ok(DEFAULT_GRACE.min(ttl / 3));
    };
    if grace <= ttl / 2 {
        return Ok(grace);
    }
    let text = |duration| humantime::format_duration(duration).to_string();
    Err(format!(
        "--kill-after {} is too long for a ttl of {}: the lease is renewed at a third of its ttl, and \
         a renewal that fails once would end the command; --kill-after may be half of the ttl",
        text(grace),
        text(ttl),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(30);
    const KILL: Option<Signal> = Some(Signal::KILL);
    const TERM: Option<Signal> = Some(Signal::TERM);

    fn watch(on_lost: OnLost) -> LeaseWatch {
        LeaseWatch::new(on_lost, 5 * SECOND, TTL, 29 * SECOND)
    }

    /// Watches a lease of which so much remains, and checks what happens then.
    fn check(watch: &mut LeaseWatch, looks: &[(Duration, Option<Action>)]) {
        for (remaining, action) in looks {
            assert_eq!(watch.next_action(*remaining), *action, "{remaining:?} of {looks:?}");
        }
    }

    #[test]
    fn renewed_lease_causes_no_action() {
        for on_lost in [OnLost::Term, OnLost::Continue] {
            let looks = [29, 20, 7, 29].map(|remaining| (remaining * SECOND, None));
            check(&mut watch(on_lost), &looks);
        }
    }

    #[test]
    fn child_is_terminated_so_early_that_its_grace_ends_with_the_lease() {
        let looks = [
            (5 * SECOND + MAX_MARGIN, Some(Action::Lost(Reason::NotRenewed, TERM))),
            (2 * MAX_MARGIN, None),
            (MAX_MARGIN, Some(Action::Kill)),
            (Duration::ZERO, None),
        ];
        check(&mut watch(OnLost::Term), &looks);
    }

    #[test]
    fn lock_of_another_client_terminates_at_once_and_kills_at_the_old_deadline() {
        let mut watch = watch(OnLost::Term);
        watch.next_action(2 * MAX_MARGIN + 5 * SECOND);
        let terminate = Some(Action::Lost(Reason::NotOurs, TERM));
        check(&mut watch, &[(Duration::ZERO, terminate), (Duration::ZERO, None)]);
        watch.deadline = Moment::now();
        check(&mut watch, &[(Duration::ZERO, Some(Action::Kill))]);
    }

    #[test]
    fn terminated_child_is_killed_after_its_grace_though_a_renewal_succeeded() {
        let mut watch = LeaseWatch::new(OnLost::Term, Duration::ZERO, TTL, 29 * SECOND);
        let terminate = Some(Action::Lost(Reason::NotOurs, TERM));
        check(&mut watch, &[(Duration::ZERO, terminate), (29 * SECOND, Some(Action::Kill))]);
    }

    #[test]
    fn child_is_killed_at_once_past_the_deadline() {
        for (on_lost, signal) in [(OnLost::Term, KILL), (OnLost::Continue, None)] {
            let mut watch = watch(on_lost);
            check(&mut watch, &[(7 * SECOND, None)]);
            watch.deadline = Moment::now();
            let expired = Some(Action::Lost(Reason::Expired, signal));
            check(&mut watch, &[(Duration::ZERO, expired), (Duration::ZERO, None)]);
        }
    }

    #[test]
    fn lease_that_may_not_be_extended_further_ends_with_its_own_reason() {
        let mut watch = watch(OnLost::Term).until(Some(Moment::now() + 39 * SECOND));
        check(&mut watch, &[(29 * SECOND, None)]);
        watch.last_deadline = Some(Moment::now() + 5 * SECOND);
        check(&mut watch, &[(29 * SECOND, Some(Action::Lost(Reason::MaxHold, TERM)))]);
    }

    #[test]
    fn grace_leaves_time_for_a_late_renewal() {
        assert_eq!(grace(None, 30 * SECOND), Ok(5 * SECOND));
        assert_eq!(grace(None, 6 * SECOND), Ok(2 * SECOND));
        assert_eq!(grace(Some(15 * SECOND), 30 * SECOND), Ok(15 * SECOND));
        let rejected = grace(Some(16 * SECOND), 30 * SECOND).unwrap_err();
        assert!(rejected.contains("--kill-after 16s is too long for a ttl of 30s"), "{rejected}");
    }
}
