//! Why Sentinels lead to no primary.

use std::io;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::super::super::failure::{is_passing, reason};

const NOT_FOUND: &str = "no primary was found";

/// A step of a search that failed. The failure of a later step says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A Sentinel did not answer.
    Reach,
    /// A Sentinel answered, but not with a primary.
    Ask,
    /// A server that Sentinels name could not be used.
    Connect,
}

pub(super) type Failed = (Step, RedisError);

/// Chooses the error that says most about why no primary was found. It is a rejection only if no
/// failure may pass: the Sentinels that are down may know a primary.
pub(super) fn most_telling(failed: Vec<Failed>) -> RedisError {
    let may_pass = failed.iter().any(|(_, error)| is_passing(error));
    // The first of them: the server that most Sentinels name.
    let last = failed.into_iter().rev().max_by_key(|(step, _)| *step);
    let (_, error) = last.expect("each Sentinel has failed, or has named a server");
    match (error.kind(), error.detail()) {
        _ if !may_pass || is_passing(&error) => error,
        (ErrorKind::InvalidClientConfig, Some(detail)) => not_found(detail.to_owned()),
        _ => not_found(reason(&error)),
    }
}

/// The search may succeed later.
pub(super) fn not_found(reason: String) -> RedisError {
    RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, NOT_FOUND, reason))
}

/// Whether the server answered that it is not the primary.
pub(super) fn is_not_found(error: &RedisError) -> bool {
    error.kind() == ErrorKind::MasterNameNotFoundBySentinel
}

pub(super) fn of_sentinel(sentinel: &str, error: RedisError) -> Failed {
    let reason = match error.kind() {
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            format!("{sentinel} is a Redis, and no Sentinel")
        }
        _ if is_passing(&error) => return (Step::Reach, without_answer(sentinel, error)),
        _ => format!("the Sentinel at {sentinel}: {}", reason(&error)),
    };
    (Step::Ask, RedisError::from((ErrorKind::InvalidClientConfig, NOT_FOUND, reason)))
}

/// Names the server in an error, if it did not answer.
pub(super) fn without_answer(server: &str, error: RedisError) -> RedisError {
    match error.kind() {
        ErrorKind::Io => io::Error::other(format!("{server}: {error}")).into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_that_says_most_is_chosen_and_rejects_only_if_no_other_may_pass() {
        let error = |kind, text: &'static str| RedisError::from((kind, text));
        let silence = || (Step::Reach, error(ErrorKind::Io, "silence"));
        let unknown = || (Step::Ask, not_found("unknown".to_owned()));
        let rejection = || (Step::Ask, error(ErrorKind::AuthenticationFailed, "rejection"));
        let primary = || (Step::Connect, error(ErrorKind::Io, "primary"));
        let guarded = || (Step::Connect, error(ErrorKind::AuthenticationFailed, "guarded"));
        for (mut failed, chosen, passes) in [
            (vec![silence()], "silence", true),
            (vec![rejection()], "rejection", false),
            (vec![unknown(), silence()], "unknown", true),
            (vec![rejection(), silence(), silence()], "rejection", true),
            (vec![rejection(), unknown(), primary()], "primary", true),
            (vec![rejection(), guarded()], "guarded", false),
            (vec![silence(), guarded()], "guarded", true),
        ] {
            for _ in 0..2 {
                let error = most_telling(failed.clone());
                assert!(error.to_string().contains(chosen), "{error} of {failed:?}");
                assert_eq!(is_passing(&error), passes, "{failed:?}");
                failed.reverse();
            }
        }
    }
}
