//! Releases, which follow the tries that the server may still carry out.

use std::time::Duration;

use fence::Holder;
use futures_util::future::join;
use tokio::time::{sleep, timeout};

use super::{
    answer::LockDatabase,
    line::{Answer, Statements, silence},
    pool::{Pool, Purpose, Queue},
};
use crate::retry::pauses;

/// How often a release is repeated that must follow a try. The pauses add up to some 20 seconds.
const RELEASES: usize = 25;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl<D: LockDatabase> Pool<D> {
    /// Sends the release of a holder. If a try of the holder may still be carried out, another release
    /// follows it, even if the caller gives up. A caller that `gave_up` the lock waits for that one.
    pub(crate) async fn fetch_release(
        &self,
        holder: &Holder,
        gave_up: bool,
        statements: Statements,
    ) -> Answer<D> {
        let is_tried = self.0.tries.may_run(holder);
        let following = is_tried
            .then(|| self.clone().release_after_tries(holder.clone(), statements.clone()))
            .map(|release| self.0.following.spawn(release));
        let answer = match following {
            Some(release) if gave_up => timeout(self.answer_timeout(), release)
                .await
                .map_or_else(|_| Err(silence()), |ended| ended.unwrap_or_else(|_| Err(silence()))),
            None if gave_up => self.fetch_aside(statements).await,
            _ => self.send(Queue::BehindRenewals, Purpose::Other, statements).await,
        };
        if answer.is_ok() {
            self.kept_for().let_go(holder);
        }
        answer
    }

    /// Waits for the releases that follow tries, also of callers that gave up.
    pub(crate) async fn wait_for_releases(&self) {
        self.0.following.close();
        self.0.following.wait().await;
    }

    async fn release_after_tries(self, holder: Holder, statements: Statements) -> Answer<D> {
        // The server may have carried out the try, and only its answer is lost. Or it carries it out later.
        let _ = join(self.fetch_aside(statements.clone()), self.0.tries.ended(&holder)).await;
        let mut pauses = pauses(LONGEST_PAUSE).take(RELEASES);
        loop {
            let answer = self.fetch_aside(statements.clone()).await;
            if answer.is_ok() {
                self.kept_for().let_go(&holder);
                return answer;
            }
            match pauses.next() {
                Some(pause) => sleep(pause).await,
                None => return answer,
            }
        }
    }
}
