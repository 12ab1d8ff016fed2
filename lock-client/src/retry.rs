//! Repeating requests that a lock service does not answer.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::{sleep, timeout};

use crate::{backend::BackendError, clock::Moment};

/// The first pause before a request is repeated. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Returns the pauses between repeated requests. They double, and are random within 50 %, so that
/// clients that lost a lock service at the same moment don't return at the same moment.
pub(crate) fn pauses(longest: Duration) -> impl Iterator<Item = Duration> + Send {
    let pauses = ExponentialBuilder::new()
        .with_min_delay(FIRST_PAUSE.min(longest))
        .with_max_delay(longest)
        .without_max_times()
        .build();
    pauses.map(|pause| pause.mul_f64(0.5 + fastrand::f64()))
}

/// Sends a request at least once, and repeats it until it is answered or the deadline passes. The
/// last attempt is cut off at the deadline. Then the reason of an earlier one is returned, which says more.
///
/// A rejection that follows an attempt without an answer is returned as
/// [`BackendError::Unavailable`], because the earlier attempt may have been carried out.
pub(crate) async fn retry_until<T, F>(
    deadline: Moment,
    address: impl Fn() -> String,
    mut request: impl FnMut() -> F,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, BackendError>>,
{
    let mut earlier = None;
    let mut pauses = pauses(LONGEST_PAUSE);
    loop {
        let answer = timeout(deadline.remaining(), request()).await.unwrap_or_else(|_| {
            let in_time = || format!("{}: no answer in time", address()).into();
            Err(BackendError::Unavailable(earlier.take().unwrap_or_else(in_time)))
        });
        let pause = pauses.next().expect("the pauses never end");
        match answer {
            Err(BackendError::Unavailable(reason)) if deadline.remaining() > pause => {
                earlier = Some(reason);
                sleep(pause).await;
            }
            Err(BackendError::Rejected(reason) | BackendError::Invalid(reason))
                if earlier.is_some() =>
            {
                let reason =
                    format!("one request was not answered, and the next was rejected: {reason}");
                return Err(BackendError::Unavailable(reason.into()));
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    /// Sends a request to a lock service that gives these answers, one after the other.
    async fn outcome_of(answers: Vec<BackendError>) -> Result<(), BackendError> {
        let mut answers = answers.into_iter();
        let request = || std::future::ready(answers.next().map_or(Ok(()), Err));
        retry_until(Moment::now() + Duration::from_secs(20), String::new, request).await
    }

    fn unanswered() -> BackendError {
        BackendError::Unavailable("silence".into())
    }

    fn rejected() -> BackendError {
        BackendError::Rejected("no permission".into())
    }

    #[tokio::test]
    async fn request_that_may_have_been_carried_out_is_not_reported_as_rejected() {
        assert!(matches!(outcome_of(vec![unanswered()]).await, Ok(())));
        assert!(matches!(outcome_of(vec![rejected()]).await, Err(BackendError::Rejected(_))));
        for rejection in [rejected(), BackendError::Invalid("no permission for this ttl".into())] {
            let unknown = outcome_of(vec![unanswered(), rejection]).await.unwrap_err();
            assert!(matches!(unknown, BackendError::Unavailable(_)), "{unknown:?}");
            let reason = unknown.source().expect("it has a cause").to_string();
            assert!(reason.contains("no permission"), "{reason}");
        }
    }

    #[tokio::test]
    async fn cut_off_request_names_the_server() {
        let request = std::future::pending::<Result<(), BackendError>>;
        let address = || "10.0.0.7:6379".to_owned();
        let error = retry_until(Moment::now(), address, request).await.unwrap_err();
        let reason = error.source().expect("it has a cause").to_string();
        assert_eq!(reason, "10.0.0.7:6379: no answer in time");
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let longest = Duration::from_millis(100);
        let expected = [20, 40, 80, 100, 100].map(Duration::from_millis);
        for (pause, expected) in pauses(longest).zip(expected) {
            assert!((expected / 2..expected * 3 / 2).contains(&pause), "{pause:?}");
        }
    }

    #[tokio::test]
    async fn attempt_that_is_cut_off_leaves_the_reason_of_an_earlier_one() {
        let mut answers = vec![Err(unanswered())].into_iter();
        let request = || {
            let answer = answers.next();
            async {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        };
        let deadline = Moment::now() + Duration::from_millis(200);
        let result: Result<(), _> = retry_until(deadline, String::new, request).await;
        let reason = result.unwrap_err().source().expect("it has a cause").to_string();
        assert_eq!(reason, "silence");
    }
}
