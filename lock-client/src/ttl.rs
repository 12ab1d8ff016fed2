//! The time for which a lock is granted.

use std::{fmt, time::Duration};

/// The time for which a lock is granted: 10 milliseconds to 7 days, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(Duration);

impl Ttl {
    /// The shortest ttl.
    pub const MIN: Self = Self(Duration::from_millis(10));
    /// The longest ttl. A holder that crashed keeps all others out until its ttl ends.
    pub const MAX: Self = Self(Duration::from_secs(7 * 24 * 60 * 60));

    /// Makes a ttl. Fractions of a millisecond are cut off.
    ///
    /// # Errors
    /// [`InvalidTtl`] if it is shorter than [`Ttl::MIN`] or longer than [`Ttl::MAX`].
    pub fn new(duration: Duration) -> Result<Self, InvalidTtl> {
        if (Self::MIN.0..=Self::MAX.0).contains(&duration) {
            let millis = duration.as_millis().try_into().expect("7 days are few milliseconds");
            Ok(Self(Duration::from_millis(millis)))
        } else {
            Err(InvalidTtl)
        }
    }

    /// Makes a ttl of seconds.
    ///
    /// # Errors
    /// As [`Ttl::new`].
    pub fn from_secs(secs: u64) -> Result<Self, InvalidTtl> {
        Self::new(Duration::from_secs(secs))
    }

    /// The ttl.
    pub fn as_duration(self) -> Duration {
        self.0
    }

    /// The ttl in milliseconds.
    pub fn as_millis(self) -> u64 {
        self.0.as_millis().try_into().expect("7 days are few milliseconds")
    }

    /// This ttl, but no longer than a duration, and never shorter than [`Ttl::MIN`].
    pub fn at_most(self, duration: Duration) -> Self {
        Self::new(duration.clamp(Self::MIN.0, self.0)).expect("it is between two ttls")
    }

    /// How long a holder may rely on a grant of this ttl, counted from before the request. The lock
    /// service's clock may run faster by 1 % and 2 ms, the drift that Redlock assumes.
    pub fn reliable(self) -> Duration {
        self.0.saturating_sub(self.0 / 100 + Duration::from_millis(2))
    }
}

/// As people write it: `30s`, `5m`, `1h30m`.
impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = self.as_millis();
        for (unit, name) in
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")]
        {
            if millis >= unit {
                write!(f, "{}{name}", millis / unit)?;
                millis %= unit;
            }
        }
        Ok(())
    }
}

/// The duration is no valid ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a ttl is from 10 ms to 7 days")]
pub struct InvalidTtl;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_are_displayed_as_people_write_them() {
        for (millis, text) in [
            (10, "10ms"),
            (1_500, "1s500ms"),
            (30_000, "30s"),
            (300_000, "5m"),
            (5_400_000, "1h30m"),
            (604_800_000, "7d"),
        ] {
            assert_eq!(Ttl::new(Duration::from_millis(millis)).unwrap().to_string(), text);
        }
    }

    #[test]
    fn ttls_out_of_range_are_rejected() {
        for millis in [0, 9, 7 * 24 * 60 * 60 * 1000 + 1] {
            assert_eq!(Ttl::new(Duration::from_millis(millis)), Err(InvalidTtl));
        }
    }

    #[test]
    fn a_holder_relies_on_less_than_it_was_granted() {
        let reliable = |ms| Ttl::new(Duration::from_millis(ms)).unwrap().reliable();
        assert_eq!(reliable(10_000), Duration::from_millis(9_898));
        assert_eq!(reliable(10), Duration::from_micros(7_900));
    }
}
