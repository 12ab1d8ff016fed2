//! How a refusal is told.

use crate::Token;

/// A refusal of the fencing rule. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: token {token} was offered, and the fence is at {highest_token}")]
pub struct Refusal {
    /// Which of the rule's two refusals it is.
    pub reason: RefusalReason,
    /// The token that was offered.
    pub token: Token,
    /// The fence's token.
    pub highest_token: Token,
}

#[cfg(any(feature = "mariadb", feature = "postgres", feature = "redis"))]
impl Refusal {
    /// Reads what a database tells of a refusal: its code, and a JSON object with the tokens.
    pub(crate) fn told(code: &str, tokens: &str) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Tokens {
            token: Token,
            highest_token: Token,
        }
        let reason = RefusalReason::of_code(code)?;
        let Tokens { token, highest_token } = serde_json::from_str(tokens).ok()?;
        Some(Self { reason, token, highest_token })
    }
}

/// Which of the rule's two refusals a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The offered token is below the fence.
    Stale,
    /// The fence's token belongs to another holder.
    HolderConflict,
}

impl RefusalReason {
    /// The reason's name in problem documents, events and logs.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Stale => "stale-token",
            Self::HolderConflict => "holder-conflict",
        }
    }

    /// The reason of an error code: a SQLSTATE of our own, which every database uses.
    #[cfg(any(feature = "mariadb", feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn of_code(code: &str) -> Option<Self> {
        match code {
            "ZF001" => Some(Self::Stale),
            "ZF002" => Some(Self::HolderConflict),
            _ => None,
        }
    }
}

impl std::fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stale => "stale token",
            Self::HolderConflict => "the token belongs to another holder",
        })
    }
}

/// Why a claim was not accepted.
///
/// `E` is the error of the database's own client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError<E> {
    /// The rule refused it: stop, and roll back. Whoever holds the lock now is ahead.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Somebody else was faster, or a deadlock was broken up: roll back, and try the whole transaction
    /// again.
    #[error("the transaction is to be tried again: {0}")]
    Contended(E),
    /// The database did not carry it out, or its answer was lost: roll back. In a transaction that
    /// does not commit, a claim changes nothing.
    #[error("the database failed: {0}")]
    Database(E),
}

#[cfg(any(feature = "mariadb", feature = "postgres", feature = "sqlite"))]
impl From<sqlx::Error> for ClaimError<sqlx::Error> {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}
