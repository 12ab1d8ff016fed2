//! The login of a user.

use std::sync::{Arc, Mutex};

use super::{failure::Failure, messages::Authenticated};
use crate::mutex::Locked;

/// The token of a client's last login, for any purpose. So a lock that was just acquired is renewed without a
/// login.
pub(super) type Token = Arc<Mutex<Option<String>>>;

/// The login of the user, for requests of one purpose.
pub(super) struct Login {
    token: Token,
    /// One request logs in, and the others of this purpose wait for it.
    turn: tokio::sync::Mutex<()>,
}

impl Login {
    /// Returns the token, but not an expired one.
    pub(super) fn token(&self, expired: Option<&String>) -> Option<String> {
        self.token.locked().clone().filter(|token| Some(token) != expired)
    }

    pub(super) fn new(token: &Token) -> Self {
        Self { token: token.clone(), turn: tokio::sync::Mutex::default() }
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
        *self.token.locked() = Some(token.clone());
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn token_of_one_purpose_is_that_of_another_while_both_log_in() {
        let token = Token::default();
        let [tries, renewals] = [(); 2].map(|()| Login::new(&token));
        *tries.token.locked() = Some("token".to_owned());
        let _logging_in = (tries.turn.lock().await, renewals.turn.lock().await);
        assert_eq!(renewals.token(None).as_deref(), Some("token"));
    }
}
