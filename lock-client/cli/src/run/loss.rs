//! What is done to a command whose lease is lost, and when.

use std::{str::FromStr, time::Duration};

use rustix::process::Signal;

use super::status::Reason;
use lock_client::{Moment, Ttl};

/// How long, at most, until the lease is looked at again. Timers stand still while the machine is
/// suspended, and the deadline does not.
const LONGEST_NAP: Duration = Duration::from_millis(200);
/// What a timer can tell.
const SHORTEST_NAP: Duration = Duration::from_millis(1);
/// How long before the deadline the command is killed: for the signal to be sent and to have done
/// its work. The deadline itself lies before the end of the ttl.
const LONGEST_MARGIN: Duration = Duration::from_millis(100);
/// The same as a part of the ttl.
const MARGIN_OF_TTL: u32 = 50;
/// How long a command has between SIGTERM and SIGKILL, unless it is said.
const USUAL_GRACE: Duration = Duration::from_secs(5);

/// What is done to the command when its lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLost {
    /// SIGTERM, and SIGKILL after a while.
    Terminate,
    /// One signal, and it goes on.
    Signal(Signal),
    /// Nothing.
    Continue,
}

/// The signals that `--on-lost signal:` takes.
const SIGNALS: [(&str, Signal); 9] = [
    ("ALRM", Signal::ALARM),
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("KILL", Signal::KILL),
    ("QUIT", Signal::QUIT),
    ("STOP", Signal::STOP),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

impl FromStr for OnLost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("signal:") {
            let name = name.strip_prefix("SIG").unwrap_or(name);
            let known = SIGNALS.iter().find(|(known, _)| *known == name);
            return known.map(|&(_, signal)| Self::Signal(signal)).ok_or_else(|| {
                format!("the signals are {}", SIGNALS.map(|(name, _)| name).join(", "))
            });
        }
        match text {
            "term" => Ok(Self::Terminate),
            "continue" => Ok(Self::Continue),
            _ => Err("it is term, continue, or signal:NAME".to_owned()),
        }
    }
}

/// Finds the time between SIGTERM and SIGKILL: it ends before the lease does, so SIGTERM is sent when
/// so much remains. The renewal comes when two thirds of the ttl remain: what lies between
/// is there for one that doesn't succeed at once.
pub(super) fn grace(asked: Option<Duration>, ttl: Ttl) -> Result<Duration, String> {
    let Some(grace) = asked else {
        return Ok(USUAL_GRACE.min(ttl.as_duration() / 3));
    };
    if grace <= ttl.as_duration() / 2 {
        return Ok(grace);
    }
    let text = |duration| humantime::format_duration(duration).to_string();
    Err(format!(
        "--kill-after {} is too long for --ttl {}: the lease is renewed at a third of its ttl, and the \
         command would be ended if that didn't succeed at once; --kill-after may be half of the ttl",
        text(grace),
        text(ttl.as_duration()),
    ))
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The lease is lost, for this reason: send this, if anything.
    Lost(Reason, Option<Signal>),
    /// Kill the command, which was told before.
    Kill,
}

/// Watches over a lease, and says what is to be done to the command, and when.
#[derive(Debug)]
pub(super) struct Watch {
    on_lost: OnLost,
    grace: Duration,
    margin: Duration,
    /// The deadline as last known. A lease that is lost doesn't tell it any more.
    deadline: Moment,
    /// When the command was told, and why.
    lost: Option<(Moment, Reason)>,
    killed: bool,
}

impl Watch {
    pub(super) fn new(on_lost: OnLost, grace: Duration, ttl: Ttl, remaining: Duration) -> Self {
        Self {
            on_lost,
            grace,
            margin: (ttl.as_duration() / MARGIN_OF_TTL).min(LONGEST_MARGIN),
            deadline: Moment::now() + remaining,
            lost: None,
            killed: false,
        }
    }

    /// Why the lease is lost, if it is.
    pub(super) fn lost(&self) -> Option<Reason> {
        self.lost.map(|(_, reason)| reason)
    }

    /// Says what is to be done, told what remains of the lease. To be asked again until there is
    /// nothing.
    pub(super) fn look(&mut self, remaining: Duration) -> Option<Act> {
        if !remaining.is_zero() {
            self.deadline = Moment::now() + remaining;
        }
        let left = self.deadline.remaining();
        let Some((told, _)) = self.lost else {
            let reason = self.reason(remaining, left)?;
            self.lost = Some((Moment::now(), reason));
            let signal = match self.on_lost {
                // There is no time left to end by itself.
                OnLost::Terminate if left <= self.margin => {
                    self.killed = true;
                    Some(Signal::KILL)
                }
                OnLost::Terminate => Some(Signal::TERM),
                OnLost::Signal(signal) => Some(signal),
                OnLost::Continue => None,
            };
            return Some(Act::Lost(reason, signal));
        };
        let over = left <= self.margin || (told + self.grace).has_passed();
        if self.on_lost == OnLost::Terminate && !self.killed && over {
            self.killed = true;
            return Some(Act::Kill);
        }
        None
    }

    fn reason(&self, remaining: Duration, left: Duration) -> Option<Reason> {
        self.gone(remaining).or_else(|| (left <= self.early()).then_some(Reason::NotRenewed))
    }

    /// Why nothing remains of the lease, if that is so.
    pub(super) fn gone(&self, remaining: Duration) -> Option<Reason> {
        if !remaining.is_zero() {
            return None;
        }
        Some(if self.deadline.has_passed() { Reason::Expired } else { Reason::NotOurs })
    }

    /// How long before the deadline the command is told.
    fn early(&self) -> Duration {
        match self.on_lost {
            OnLost::Terminate | OnLost::Signal(_) => self.grace + self.margin,
            OnLost::Continue => Duration::ZERO,
        }
    }

    /// How long there is nothing to do, unless the lease is lost meanwhile.
    pub(super) fn nap(&self) -> Duration {
        let left = self.deadline.remaining();
        let next = match self.lost {
            None => left.saturating_sub(self.early()),
            Some((told, _)) if self.on_lost == OnLost::Terminate && !self.killed => {
                left.saturating_sub(self.margin).min((told + self.grace).remaining())
            }
            Some(_) => LONGEST_NAP,
        };
        next.clamp(SHORTEST_NAP, LONGEST_NAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ttl(secs: u64) -> Ttl {
        Ttl::from_secs(secs).unwrap()
    }

    fn watch(on_lost: OnLost) -> Watch {
        Watch::new(on_lost, 5 * SECOND, ttl(30), 29 * SECOND)
    }

    #[test]
    fn lease_that_is_renewed_is_left_alone() {
        for on_lost in [OnLost::Terminate, OnLost::Signal(Signal::USR1), OnLost::Continue] {
            let mut watch = watch(on_lost);
            for remaining in [29, 20, 6, 29] {
                assert_eq!(watch.look(remaining * SECOND), None);
            }
            assert_eq!(watch.lost(), None);
        }
    }

    #[test]
    fn what_is_not_renewed_is_terminated_so_early_that_grace_ends_with_the_lease() {
        let mut watch = watch(OnLost::Terminate);
        let terminate = Act::Lost(Reason::NotRenewed, Some(Signal::TERM));
        assert_eq!(watch.look(5 * SECOND + LONGEST_MARGIN), Some(terminate));
        assert_eq!(watch.look(SECOND), None);
        assert_eq!(watch.look(LONGEST_MARGIN), Some(Act::Kill));
        assert_eq!(watch.look(Duration::ZERO), None, "once is enough");
    }

    #[test]
    fn what_is_not_ours_is_terminated_at_once_and_killed_at_its_old_deadline() {
        let mut watch = watch(OnLost::Terminate);
        watch.look(2 * LONGEST_MARGIN + 5 * SECOND);
        let terminate = Act::Lost(Reason::NotOurs, Some(Signal::TERM));
        assert_eq!(watch.look(Duration::ZERO), Some(terminate));
        assert_eq!(watch.look(Duration::ZERO), None);
        watch.deadline = Moment::now();
        assert_eq!(watch.look(Duration::ZERO), Some(Act::Kill));
    }

    #[test]
    fn what_was_told_is_killed_after_its_grace_though_a_renewal_came_through() {
        let mut watch = Watch::new(OnLost::Terminate, Duration::ZERO, ttl(30), 29 * SECOND);
        let terminate = Act::Lost(Reason::NotOurs, Some(Signal::TERM));
        assert_eq!(watch.look(Duration::ZERO), Some(terminate));
        assert_eq!(watch.look(29 * SECOND), Some(Act::Kill));
    }

    #[test]
    fn what_wakes_past_the_deadline_is_killed_at_once() {
        let mut watch = watch(OnLost::Terminate);
        watch.deadline = Moment::now();
        let kill = Act::Lost(Reason::Expired, Some(Signal::KILL));
        assert_eq!(watch.look(Duration::ZERO), Some(kill));
        assert_eq!(watch.look(Duration::ZERO), None);
    }

    #[test]
    fn one_signal_is_sent_as_early_and_nothing_more() {
        let mut watch = watch(OnLost::Signal(Signal::USR1));
        let signal = Act::Lost(Reason::NotRenewed, Some(Signal::USR1));
        assert_eq!(watch.look(5 * SECOND + LONGEST_MARGIN), Some(signal));
        watch.deadline = Moment::now();
        assert_eq!(watch.look(Duration::ZERO), None);
    }

    #[test]
    fn what_continues_is_lost_at_the_deadline_and_not_before() {
        let mut watch = watch(OnLost::Continue);
        assert_eq!(watch.look(SECOND), None);
        watch.deadline = Moment::now();
        assert_eq!(watch.look(Duration::ZERO), Some(Act::Lost(Reason::Expired, None)));
        assert_eq!(watch.look(Duration::ZERO), None);
    }

    #[test]
    fn grace_leaves_time_for_a_renewal_that_is_late() {
        assert_eq!(grace(None, ttl(30)), Ok(5 * SECOND));
        assert_eq!(grace(None, ttl(6)), Ok(2 * SECOND));
        assert_eq!(grace(Some(15 * SECOND), ttl(30)), Ok(15 * SECOND));
        let refused = grace(Some(16 * SECOND), ttl(30)).unwrap_err();
        assert!(refused.contains("--kill-after 16s is too long for --ttl 30s"), "{refused}");
    }

    #[test]
    fn what_to_do_on_loss_is_read() {
        assert_eq!("term".parse(), Ok(OnLost::Terminate));
        assert_eq!("continue".parse(), Ok(OnLost::Continue));
        assert_eq!("signal:USR1".parse(), Ok(OnLost::Signal(Signal::USR1)));
        assert_eq!("signal:SIGHUP".parse(), Ok(OnLost::Signal(Signal::HUP)));
        for wrong in ["signal:", "signal:usr1", "signal:9", "kill", ""] {
            assert!(wrong.parse::<OnLost>().is_err(), "{wrong}");
        }
    }
}
