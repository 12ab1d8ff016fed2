//! Asking a lock service again that doesn't answer.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::{backend::BackendError, clock::Moment};

/// The first pause before a request is repeated; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks until there is an answer, or until the moment to give up. Each request is cut off then, and
/// there is always one. A refusal that follows a request without an answer is told as
/// [`BackendError::Unavailable`], as what came before it may have been done.
pub(crate) async fn retried_until<T, F>(
    give_up: Moment,
    mut ask: impl FnMut() -> F,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, BackendError>>,
{
    let mut unanswered = false;
    let mut pause = FIRST_PAUSE;
    loop {
        let no_answer = || Err(BackendError::Unavailable("no answer in time".into()));
        let answer = timeout(give_up.remaining(), ask()).await.unwrap_or_else(|_| no_answer());
        // Whoever lost a lock service at the same moment doesn't come back at the same moment.
        let jittered = pause.mul_f64(rand::random_range(0.5..1.5));
        match answer {
            Err(BackendError::Unavailable(_)) if give_up.remaining() > jittered => {
                unanswered = true;
                sleep(jittered).await;
            }
            Err(BackendError::Rejected(reason)) if unanswered => {
                let reason =
                    format!("one request was not answered, and the next refused: {reason}");
                return Err(BackendError::Unavailable(reason.into()));
            }
            answer => return answer,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a lock service that gives these answers, one after the other.
    async fn told(answers: Vec<BackendError>) -> Result<(), BackendError> {
        let mut answers = answers.into_iter();
        let ask = || std::future::ready(answers.next().map_or(Ok(()), Err));
        retried_until(Moment::now() + Duration::from_secs(20), ask).await
    }

    fn silent() -> BackendError {
        BackendError::Unavailable("silence".into())
    }

    fn refused() -> BackendError {
        BackendError::Rejected("no permission".into())
    }

    #[tokio::test]
    async fn what_may_have_been_done_is_not_told_as_refused() {
        assert!(matches!(told(vec![silent()]).await, Ok(())));
        assert!(matches!(told(vec![refused()]).await, Err(BackendError::Rejected(_))));
        let unknown = told(vec![silent(), refused()]).await.unwrap_err();
        assert!(matches!(unknown, BackendError::Unavailable(_)), "{unknown:?}");
        assert!(unknown.to_string().contains("no permission"), "{unknown}");
    }
}
