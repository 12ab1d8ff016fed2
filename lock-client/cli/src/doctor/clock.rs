//! The server's clock, compared with this machine's.

use std::time::{Duration, Instant, SystemTime};

use redis::{RedisResult, aio::ConnectionLike};

use super::{
    connection::ask,
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "clock";
const SAMPLES: usize = 5;
const TOLERANCE: Duration = Duration::from_secs(1);

/// Compares the server's clock with this machine's.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn clock(connection: &mut impl ConnectionLike) -> RedisResult<Finding> {
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let (our_time, sent) = (SystemTime::now(), Instant::now());
        let time = match ask::<(u64, u64)>(connection, &redis::cmd("TIME")).await? {
            Ok(time) => time,
            Err(rejection) => {
                let finding =
                    Finding::unseen(Severity::Warning, CHECK, "its clock", Some(&rejection));
                return Ok(finding);
            }
        };
        samples.push(Sample::new(our_time, sent.elapsed(), time));
    }
    Ok(best(samples))
}

/// Returns the finding of the comparison that was answered soonest.
pub(super) fn best(samples: Vec<Sample>) -> Finding {
    let best = samples.into_iter().min_by_key(|sample| sample.uncertainty);
    best.expect("there are several samples").finding()
}

/// One comparison.
pub(super) struct Sample {
    /// How far the server's clock is ahead of ours; negative if it is behind.
    ahead_us: i128,
    /// Half the round trip: the server read its clock at an unknown moment of it.
    uncertainty: Duration,
}

impl Sample {
    pub(super) fn new(
        our_time: SystemTime,
        round_trip: Duration,
        (seconds, micros): (u64, u64),
    ) -> Self {
        let since_epoch = our_time.duration_since(SystemTime::UNIX_EPOCH);
        let uncertainty = round_trip / 2;
        let ours = since_epoch.expect("the clock is set after 1970") + uncertainty;
        let theirs = i128::from(seconds) * 1_000_000 + i128::from(micros);
        Self { ahead_us: theirs - signed_micros(ours), uncertainty }
    }

    fn finding(&self) -> Finding {
        let side = if self.ahead_us < 0 { "behind" } else { "ahead of" };
        let apart =
            Duration::from_micros(self.ahead_us.unsigned_abs().try_into().unwrap_or(u64::MAX));
        let found = format!(
            "its clock is {:.3} s {side} this machine's, give or take {:.3} s",
            apart.as_secs_f64(),
            self.uncertainty.as_secs_f64()
        );
        if apart <= TOLERANCE + self.uncertainty {
            return Finding::ok(CHECK, found);
        }
        Finding::bad(
            Severity::Warning,
            CHECK,
            found,
            "a correction by a jump ends locks early or late; and a missing counter starts at the \
             client's clock, which is below the tokens of other clients if this machine's is \
             behind",
            Cure::advice(
                "find out which clock is wrong; run an NTP service that slews it on both machines",
            ),
        )
    }
}

fn signed_micros(duration: Duration) -> i128 {
    duration.as_micros().try_into().expect("the clock is set to a year that fits")
}

#[cfg(test)]
mod tests {
    use redis::{Cmd, Pipeline, RedisFuture, Value};

    use super::*;

    /// A server whose clock is this many seconds ahead.
    struct Ahead(i64);

    impl ConnectionLike for Ahead {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let seconds = i64::try_from(now.as_secs()).unwrap() + self.0;
            let time = [seconds, now.subsec_micros().into()].map(Value::Int);
            Box::pin(async { Ok(Value::Array(time.into())) })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            unreachable!("one command at a time")
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    #[tokio::test]
    async fn clocks_that_differ_are_reported() {
        for (seconds, expected) in
            [(0, Severity::Ok), (60, Severity::Warning), (-60, Severity::Warning)]
        {
            let finding = clock(&mut Ahead(seconds)).await.unwrap();
            assert_eq!(finding.severity, expected, "{}", finding.found);
        }
    }

    #[test]
    fn slow_answer_is_not_mistaken_for_a_different_clock() {
        let sent = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let severity = |round_trip: u64, theirs: u64| {
            let round_trip = Duration::from_secs(round_trip);
            Sample::new(sent, round_trip, (theirs, 0)).finding().severity
        };
        assert_eq!(severity(4, 1_000), Severity::Ok, "the server may have read its clock at once");
        assert_eq!(severity(4, 1_004), Severity::Ok, "or at the end");
        assert_eq!(severity(4, 1_006), Severity::Warning);
        assert_eq!(severity(4, 998), Severity::Warning);
        assert_eq!(severity(0, 1_002), Severity::Warning);
    }
}
