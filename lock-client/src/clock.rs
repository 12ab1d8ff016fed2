//! The clock of deadlines.

use std::time::SystemTime;
use std::{ops::Add, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

/// The longest time for which a timer is set. Timers stand still while the machine is suspended:
/// after a suspension, a timer is late by as much as was left of it.
pub(crate) const LONGEST_TIMER: Duration = Duration::from_secs(1);

/// A moment on a monotonic clock that also counts the time for which the machine was suspended.
///
/// `std::time::Instant` doesn't count it on Linux: after a suspension, a lease that expired long
/// ago would still look held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

/// On Linux, `CLOCK_MONOTONIC` stands still during a suspension.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere (macOS), `CLOCK_MONOTONIC` continues during a suspension.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        let now = clock_gettime(CLOCK);
        Self(now.try_into().expect("the clock counts from the start of the machine"))
    }

    /// The time since this moment; zero if it is in the future.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// Whether this moment has passed.
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// The moment this much earlier; `None` if that is before the start of the machine, which no
    /// moment is.
    pub(crate) fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }

    /// Waits until this moment. After the machine was suspended, it may take up to a second longer.
    pub(crate) async fn passed(self) {
        while !self.has_passed() {
            sleep(self.remaining().min(LONGEST_TIMER)).await;
        }
    }

    /// The time until this moment; zero if it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }
}

/// The Unix time in milliseconds, at which a missing counter starts.
pub(crate) fn unix_millis() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since_epoch.expect("the clock is set after 1970").as_millis();
    millis.try_into().expect("u64 holds 584 million years")
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_moment_is_before_the_start_of_the_machine() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
        assert_eq!(Moment(hour).checked_sub(minute), Some(Moment(hour - minute)));
        assert_eq!(Moment(minute).checked_sub(hour), None);
    }
}
