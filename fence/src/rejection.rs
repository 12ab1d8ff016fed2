//! Rejections by the rule, and errors of claims.

use std::{error::Error, fmt};

use crate::{name::ResourceName, token::Token};

/// The rule rejected an offered token and holder. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Which of the rule's two rejections it is.
    pub reason: RejectionReason,
    /// The token that was offered.
    pub token: Token,
    /// The fence's token.
    pub highest_token: Token,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, token, highest_token } = self;
        write!(f, "{reason}: token {token} was offered, and the fence is at {highest_token}")?;
        self.hint().map_or(Ok(()), |hint| write!(f, ". {hint}"))
    }
}

impl Error for Rejection {}

/// Counters start at the Unix time in milliseconds, and a grant adds 1. A day has as many.
const DAY: u64 = 86_400_000;

impl Rejection {
    /// The likely cause, if a lock that was granted again since is not: the tokens are too far apart
    /// to be of one counter.
    pub fn hint(&self) -> Option<&'static str> {
        let distance = self.highest_token.as_u64().saturating_sub(self.token.as_u64());
        (distance > DAY).then_some(
            "The token is days below the fence: probably two lock services guard this resource, or a \
             counter started anew",
        )
    }
}

#[cfg(any(feature = "mariadb", feature = "postgres", feature = "redis"))]
impl Rejection {
    /// Parses a datastore's error: its code, and the tokens in a JSON object.
    pub(crate) fn parse(code: &str, tokens: &str) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Tokens {
            token: Token,
            highest_token: Token,
        }
        let reason = RejectionReason::from_code(code)?;
        let Tokens { token, highest_token } = serde_json::from_str(tokens).ok()?;
        Some(Self { reason, token, highest_token })
    }
}

/// Which of the rule's two reasons a rejection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectionReason {
    /// The offered token is below the fence.
    Stale,
    /// The fence's token belongs to another holder.
    HolderConflict,
}

impl RejectionReason {
    /// The reason's name in problem documents, events and logs.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Stale => "stale-token",
            Self::HolderConflict => "holder-conflict",
        }
    }

    /// The reason for an error code. The codes are SQLSTATEs of our own, the same in every
    /// datastore.
    #[cfg(any(feature = "mariadb", feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn from_code(code: &str) -> Option<Self> {
        match code {
            "ZF001" => Some(Self::Stale),
            "ZF002" => Some(Self::HolderConflict),
            _ => None,
        }
    }
}

impl fmt::Display for RejectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "stale token",
            Self::HolderConflict => "the token belongs to another holder",
        })
    }
}

/// Why a claim, or a write that claims, failed.
///
/// `E` is the error type of the datastore's client.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimError<E> {
    /// The rule rejected: roll back, and stop. The lock was granted to another client since.
    Rejected {
        /// The resource that was claimed.
        resource: ResourceName,
        /// The reason, and the tokens.
        rejection: Rejection,
    },
    /// Another transaction was faster, or the database resolved a deadlock: roll back, and retry
    /// the whole transaction.
    Contended {
        /// The resource that was claimed.
        resource: ResourceName,
        /// The error of the datastore's client.
        source: E,
    },
    /// The datastore failed, or its answer was lost: roll back. A claim changes nothing unless its
    /// transaction commits.
    Database {
        /// The resource that was claimed.
        resource: ResourceName,
        /// The error of the datastore's client.
        source: E,
    },
}

impl<E> fmt::Display for ClaimError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { resource, rejection } => {
                write!(f, "the claim of `{resource}` was rejected: {rejection}")
            }
            Self::Contended { resource, .. } => {
                write!(
                    f,
                    "the claim of `{resource}` met another transaction: retry the whole transaction"
                )
            }
            Self::Database { resource, .. } => write!(f, "the claim of `{resource}` failed"),
        }
    }
}

impl<E: Error + 'static> Error for ClaimError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Rejected { .. } => None,
            Self::Contended { source, .. } | Self::Database { source, .. } => Some(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn stale_token_that_is_days_old_hints_at_another_counter() {
        let rejection = |token, highest_token| Rejection {
            reason: RejectionReason::Stale,
            token: Token::new(token).unwrap(),
            highest_token: Token::new(highest_token).unwrap(),
        };
        for (token, is_far) in [(33, true), (1_794_900_000_000, true), (1_794_999_999_999, false)] {
            let printed = rejection(token, 1_795_000_000_000).to_string();
            assert_eq!(printed.contains("two lock services"), is_far, "{printed}");
        }
        assert_eq!(rejection(33, 34).hint(), None);
    }

    #[test]
    fn claim_errors_name_the_resource_and_print_a_cause_once() {
        let resource: ResourceName = "alice".parse().unwrap();
        let cause = || io::Error::other("the server is gone");
        let token = |number| Token::new(number).unwrap();
        let rejection = Rejection {
            reason: RejectionReason::Stale,
            token: token(33),
            highest_token: token(34),
        };
        let errors = [
            ClaimError::Rejected { resource: resource.clone(), rejection },
            ClaimError::Contended { resource: resource.clone(), source: cause() },
            ClaimError::Database { resource, source: cause() },
        ];
        for error in errors {
            assert!(error.to_string().contains("`alice`"), "{error}");
            assert!(!error.to_string().contains("gone"), "{error}");
            let is_rejection = matches!(error, ClaimError::Rejected { .. });
            assert_eq!(error.source().is_none(), is_rejection, "{error}");
        }
    }
}
