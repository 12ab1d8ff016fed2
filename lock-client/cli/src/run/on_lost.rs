//! The options for a lost lease: `--on-lost` and `--kill-after`.

use std::{str::FromStr, time::Duration};

use lock_client::Ttl;
use rustix::process::Signal;

/// The time between SIGTERM and SIGKILL without `--kill-after`.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// What happens to the child when its lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLost {
    /// SIGTERM, and SIGKILL after the grace.
    Terminate,
    /// One signal. The child continues.
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

/// Returns the time between SIGTERM and SIGKILL.
///
/// SIGKILL must come before the lease ends, so SIGTERM is sent when this much of the lease remains.
/// The renewal starts when two thirds of the ttl remain; the time between is for its retries.
pub(super) fn grace(kill_after: Option<Duration>, ttl: Ttl) -> Result<Duration, String> {
    let Some(grace) = kill_after else {
        return Ok(DEFAULT_GRACE.min(ttl.as_duration() / 3));
    };
    if grace <= ttl.as_duration() / 2 {
        return Ok(grace);
    }
    let text = |duration| humantime::format_duration(duration).to_string();
    Err(format!(
        "--kill-after {} is too long for --ttl {}: the lease is renewed at a third of its ttl, and \
         a renewal that fails once would end the command; --kill-after may be half of the ttl",
        text(grace),
        text(ttl.as_duration()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ttl(secs: u64) -> Ttl {
        Ttl::from_secs(secs).unwrap()
    }

    #[test]
    fn grace_leaves_time_for_a_late_renewal() {
        assert_eq!(grace(None, ttl(30)), Ok(5 * SECOND));
        assert_eq!(grace(None, ttl(6)), Ok(2 * SECOND));
        assert_eq!(grace(Some(15 * SECOND), ttl(30)), Ok(15 * SECOND));
        let rejected = grace(Some(16 * SECOND), ttl(30)).unwrap_err();
        assert!(rejected.contains("--kill-after 16s is too long for --ttl 30s"), "{rejected}");
    }

    #[test]
    fn on_lost_is_parsed() {
        assert_eq!("term".parse(), Ok(OnLost::Terminate));
        assert_eq!("continue".parse(), Ok(OnLost::Continue));
        assert_eq!("signal:USR1".parse(), Ok(OnLost::Signal(Signal::USR1)));
        assert_eq!("signal:SIGHUP".parse(), Ok(OnLost::Signal(Signal::HUP)));
        for wrong in ["signal:", "signal:usr1", "signal:9", "kill", ""] {
            assert!(wrong.parse::<OnLost>().is_err(), "{wrong}");
        }
    }
}
