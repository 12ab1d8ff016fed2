//! A server's clock, compared with this machine's.

use std::time::{Duration, Instant, SystemTime};

use crate::check::{Check, Verdict};

const SAMPLES: usize = 5;
const TOLERANCE: Duration = Duration::from_secs(1);

/// A clock that is compared several times.
#[derive(Default)]
pub(crate) struct Clock {
    samples: usize,
    best: Option<Difference>,
}

/// The moment at which the server was asked.
pub(crate) struct Sample {
    our_time: SystemTime,
    sent: Instant,
}

/// The result of one comparison.
struct Difference {
    /// How far the server's clock is ahead of ours; negative if it is behind.
    ahead_us: i128,
    /// Half the round trip: the server read its clock at an unknown moment of it.
    uncertainty: Duration,
}

impl Clock {
    pub(crate) fn needs_more(&self) -> bool {
        self.samples < SAMPLES
    }

    /// Call it right before the server is asked.
    pub(crate) fn sample(&self) -> Sample {
        Sample { our_time: SystemTime::now(), sent: Instant::now() }
    }

    /// Adds an answer: Unix time, as seconds and microseconds. The one that came soonest counts.
    pub(crate) fn add(&mut self, Sample { our_time, sent }: Sample, time: (u64, u64)) {
        let difference = Difference::new(our_time, sent.elapsed(), time);
        self.samples += 1;
        if self.best.as_ref().is_none_or(|best| difference.uncertainty < best.uncertainty) {
            self.best = Some(difference);
        }
    }

    pub(crate) fn check(&self) -> Check {
        self.best.as_ref().expect("there are several samples").check()
    }
}

impl Difference {
    fn new(our_time: SystemTime, round_trip: Duration, (seconds, micros): (u64, u64)) -> Self {
        let since_epoch = our_time.duration_since(SystemTime::UNIX_EPOCH);
        let uncertainty = round_trip / 2;
        let ours = since_epoch.expect("the clock is set after 1970") + uncertainty;
        let ours: i128 = ours.as_micros().try_into().expect("the clock is set to a year that fits");
        let theirs = i128::from(seconds) * 1_000_000 + i128::from(micros);
        Self { ahead_us: theirs - ours, uncertainty }
    }

    fn check(&self) -> Check {
        const NAME: &str = "clock";
        let side = if self.ahead_us < 0 { "behind" } else { "ahead of" };
        let apart =
            Duration::from_micros(self.ahead_us.unsigned_abs().try_into().unwrap_or(u64::MAX));
        let found = format!(
            "its clock is {:.3} s {side} this machine's, give or take {:.3} s",
            apart.as_secs_f64(),
            self.uncertainty.as_secs_f64()
        );
        if apart <= TOLERANCE + self.uncertainty {
            return Check::ok(NAME, found);
        }
        Check::bad(
            Verdict::Warning,
            NAME,
            found,
            "a correction by a jump ends locks early or late; and a missing counter starts at the client's \
             clock, which is below the tokens of other clients if this machine's is behind",
            "find out which clock is wrong; run an NTP service that slews it on both machines",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_answer_is_not_mistaken_for_a_different_clock() {
        let sent = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let verdict = |round_trip: u64, theirs: u64| {
            let round_trip = Duration::from_secs(round_trip);
            Difference::new(sent, round_trip, (theirs, 0)).check().verdict
        };
        assert_eq!(verdict(4, 1_000), Verdict::Ok, "the server may have read its clock at once");
        assert_eq!(verdict(4, 1_004), Verdict::Ok, "or at the end");
        assert_eq!(verdict(4, 1_006), Verdict::Warning);
        assert_eq!(verdict(4, 998), Verdict::Warning);
        assert_eq!(verdict(0, 1_002), Verdict::Warning);
    }
}
