//! The login of a user.

use std::sync::{Mutex, MutexGuard};

use super::{failure::Failure, messages::Authenticated};

/// The login of the user, for requests of one purpose.
#[derive(Default)]
pub(super) struct Login {
    token: Mutex<Option<String>>,
    /// One request logs in, and the others wait for it.
    turn: tokio::sync::Mutex<()>,
}

impl Login {
    /// Returns the token, but not an expired one.
    pub(super) fn token(&self, expired: Option<&String>) -> Option<String> {
        self.lock_token().clone().filter(|token| Some(token) != expired)
    }

    /// Takes the token of another login, if that has one.
    pub(super) fn copy_from(&self, other: &Self) {
        if let Some(token) = other.token(None) {
            *self.lock_token() = Some(token);
        }
    }

    /// The same as [`token`](Self::token), but logs in if there is none.
    pub(super) async fn token_or_log_in(
        &self,
        expired: Option<&String>,
        authenticate: impl Future<Output = Result<Authenticated, Failure>>,
    ) -> Result<String, Failure> {
        if let Some(token) = self.token(expired) {
            return Ok(token);
        }
        let _turn = self.turn.lock().await;
        if let Some(token) = self.token(expired) {
            return Ok(token);
        }
        let Authenticated { token } = authenticate.await?;
        *self.lock_token() = Some(token.clone());
        Ok(token)
    }

    fn lock_token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().expect("nothing panics while it holds this")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So a lock that was just acquired is renewed without a login.
    #[tokio::test]
    async fn token_is_copied_while_other_requests_log_in() {
        let [tries, renewals] = [(); 2].map(|()| Login::default());
        *tries.lock_token() = Some("token".to_owned());
        let _logging_in = (tries.turn.lock().await, renewals.turn.lock().await);
        renewals.copy_from(&tries);
        assert_eq!(renewals.token(None).as_deref(), Some("token"));
    }
}
