//! A server's clock, compared with this machine's.

use std::time::{Duration, Instant, SystemTime};

use crate::check::{Check, Verdict};

const SAMPLES: usize = 5;
const TOLERANCE: Duration = Duration::from_secs(1);

/// Asks a server for its Unix time, in microseconds, several times. The answer that came soonest counts.
///
/// # Errors
/// Those of the question.
pub(crate) async fn compare<E>(mut ask: impl AsyncFnMut() -> Result<i128, E>) -> Result<Check, E> {
    let mut soonest = (Duration::MAX, 0);
    for _ in 0..SAMPLES {
        let (our_time, sent) = (SystemTime::now(), Instant::now());
        let theirs = ask().await?;
        let round_trip = sent.elapsed();
        if round_trip < soonest.0 {
            let ours = our_time.duration_since(SystemTime::UNIX_EPOCH);
            let ours = ours.expect("the clock is set after 1970").as_micros().cast_signed();
            soonest = (round_trip, theirs - ours);
        }
    }
    Ok(check(soonest.0, soonest.1))
}

/// The server's clock was this far ahead of ours when it was asked; negative if it was behind. It may have read its
/// clock at any moment of the round trip.
fn check(round_trip: Duration, ahead_us: i128) -> Check {
    let [ahead, round_trip] = [ahead_us as f64 / 1e6, round_trip.as_secs_f64()];
    let (ahead, uncertainty) = (ahead - round_trip / 2.0, round_trip / 2.0);
    let side = if ahead < 0.0 { "behind" } else { "ahead of" };
    let apart = ahead.abs();
    let found =
        format!("its clock is {apart:.3} s {side} this machine's, give or take {uncertainty:.3} s");
    Check::ok("clock", found).unless(
        apart <= TOLERANCE.as_secs_f64() + uncertainty,
        Verdict::Warning,
        "a correction by a jump ends locks early or late; and a missing counter starts at the client's clock, which is \
         below the tokens of other clients if this machine's is behind",
        "find out which clock is wrong; run an NTP service that slews it on both machines",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_answer_is_not_mistaken_for_a_different_clock() {
        for (round_trip, ahead, expected) in [
            (4, 0, Verdict::Ok), // The server may have read its clock at once,
            (4, 4, Verdict::Ok), // or at the end.
            (4, 6, Verdict::Warning),
            (4, -2, Verdict::Warning),
            (0, 2, Verdict::Warning),
            (0, -60, Verdict::Warning),
        ] {
            let check = check(Duration::from_secs(round_trip), ahead * 1_000_000);
            assert_eq!(check.verdict, expected, "{round_trip} {ahead}: {}", check.found);
        }
    }
}
