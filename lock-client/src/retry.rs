//! Asking a lock service again that doesn't answer.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::{backend::BackendError, clock::Moment};

/// The first pause before a request is repeated; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks until there is an answer, or until the moment to give up. Each request is cut off then, and
/// there is always one.
pub(crate) async fn retried_until<T, F>(
    give_up: Moment,
    mut ask: impl FnMut() -> F,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, BackendError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let no_answer = || Err(BackendError::Unavailable("no answer in time".into()));
        let answer = timeout(give_up.remaining(), ask()).await.unwrap_or_else(|_| no_answer());
        // Whoever lost a lock service at the same moment doesn't come back at the same moment.
        let jittered = pause.mul_f64(rand::random_range(0.5..1.5));
        match answer {
            Err(BackendError::Unavailable(_)) if give_up.remaining() > jittered => {
                sleep(jittered).await;
            }
            answer => return answer,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
