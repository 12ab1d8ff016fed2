//! Why a command failed, and how each error becomes an exit code and a message.

use std::{error::Error, io, iter::successors};

use crate::{exit_code, signals::Received};
use lock_client::{
    AcquireError, InvalidUrl, LockServiceError, Lost, RenewError,
    backend::BackendError,
    redlock::{InvalidNodes, LongTtl, operator::OperatorError},
    storage::{FencedError, StorageError},
};

/// Why a command failed. Each variant has an exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments or the environment are wrong.
    Usage(String),
    /// The resource has no value.
    NoValue(String),
    /// The lock service or the storage did not answer, or rejected the request.
    Unavailable(String),
    /// The output could not be written to stdout.
    CannotPrint(io::Error),
    /// Another client holds the lock.
    Busy(String),
    /// The lease was lost.
    LeaseLost(String),
    /// The storage rejected the token.
    TokenRejected(String),
    /// A majority of the nodes may vote, but not all of them.
    Degraded(String),
    /// A signal ended the work. The process ends by the same one.
    Signal(i32),
    /// A signal came before a release was answered, which nobody waits for any longer. The process ends
    /// by the same one.
    Interrupted(i32),
    /// The command has printed everything already. Only the exit code is left.
    Reported {
        /// The exit code.
        code: u8,
    },
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit_code::USAGE,
            Self::NoValue(_) => exit_code::NO_VALUE,
            Self::Unavailable(_) => exit_code::UNAVAILABLE,
            Self::CannotPrint(_) => exit_code::CANNOT_PRINT,
            Self::Busy(_) => exit_code::BUSY,
            Self::LeaseLost(_) => exit_code::LEASE_LOST,
            Self::TokenRejected(_) => exit_code::TOKEN_REJECTED,
            Self::Degraded(_) => exit_code::DEGRADED,
            Self::Signal(signal) | Self::Interrupted(signal) => exit_code::ended_by_signal(*signal),
            Self::Reported { code } => *code,
        }
    }

    /// The message for stderr, if there is something left to print.
    pub(crate) fn message(&self) -> Option<String> {
        Some(match self {
            Self::Usage(message)
            | Self::NoValue(message)
            | Self::Unavailable(message)
            | Self::Busy(message)
            | Self::LeaseLost(message)
            | Self::TokenRejected(message)
            | Self::Degraded(message) => message.clone(),
            Self::CannotPrint(error) => format!("can't print: {error}"),
            Self::Signal(_) | Self::Interrupted(_) | Self::Reported { .. } => return None,
        })
    }

    /// A request that is wrong itself.
    fn invalid(error: &(dyn Error + 'static)) -> Self {
        let mut text = with_causes(error);
        let causes = successors(Some(error), |&error| error.source());
        if let Some(long) = causes.filter_map(|cause| cause.downcast_ref::<LongTtl>()).next() {
            text += &format!("; give --ttl {} or less", long.longest());
        }
        Self::Usage(text)
    }

    /// A lock service that did not answer, or rejected the request.
    fn unavailable(error: &dyn Error) -> Self {
        let error = with_causes(error);
        // Redis answers a script without a password by an error about the length of the script.
        let needs_password = [r#""NOAUTH": "#, "Protocol error: unauthenticated"]
            .iter()
            .any(|words| error.contains(words));
        Self::Unavailable(if needs_password {
            let (who, setting) = if error.contains("of the Sentinels ") {
                (
                    "Redis or a Sentinel",
                    ", as redis+sentinel://:PASSWORD@… or ?sentinel-password=PASSWORD",
                )
            } else {
                ("Redis", ", as redis://:PASSWORD@HOST")
            };
            format!("{who} asks for a password: add it to the URL{setting} ({error})")
        } else {
            error
        })
    }
}

/// What the options can do about an error of the storage.
fn with_hint(error: String) -> String {
    // Another authority of the same name has signed nothing of this one.
    let hint = if ["UnknownIssuer", "BadSignature"].iter().any(|fault| error.contains(fault)) {
        "name the authority of its certificate with --storage-ca-file"
    } else if error.contains("bearer token") {
        "give one with --storage-token-file, or set FENCED_STORAGE_TOKEN; or show a certificate with \
         --storage-cert-file and --storage-key-file"
    } else if error.contains("CertificateRequired") {
        "show one with --storage-cert-file and --storage-key-file"
    } else {
        return error;
    };
    format!("{error}; {hint}")
}

/// An error and its causes in one line. A cause is left out if the text before has it already.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

impl From<Received> for Failure {
    fn from(received: Received) -> Self {
        Self::Signal(received.signal.as_raw())
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Contended { .. } => Self::Busy(with_causes(&error)),
            AcquireError::Invalid { .. } => Self::invalid(&error),
            error => Self::unavailable(&error),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Lost(lost) => lost.into(),
            RenewError::LockService { source: BackendError::Invalid(_), .. } => {
                Self::invalid(&error)
            }
            error => Self::unavailable(&error),
        }
    }
}

impl From<FencedError> for Failure {
    fn from(error: FencedError) -> Self {
        let text = with_causes(&error);
        match error {
            FencedError::Lost { rejection: Some(_), .. } => Self::TokenRejected(text),
            FencedError::Lost { rejection: None, .. } => Self::LeaseLost(text),
            _ => Self::Unavailable(with_hint(text)),
        }
    }
}

/// Turns each error into a failure.
macro_rules! failures {
    ($($error:ty => $failure:expr;)*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let failure: fn(&$error) -> Self = $failure;
                failure(&error)
            }
        })*
    };
}

failures! {
    LockServiceError => |error| Self::unavailable(error);
    Lost => |error| Self::LeaseLost(with_causes(error));
    StorageError => |error| Self::Unavailable(with_hint(with_causes(error)));
    InvalidUrl => |error| Self::Usage(format!(
        "{error} (a space within a URL is %20): see --help"
    ));
}

impl From<InvalidNodes> for Failure {
    fn from(error: InvalidNodes) -> Self {
        match error {
            InvalidNodes::Url(error) => error.into(),
            error => Self::Usage(with_causes(&error)),
        }
    }
}

impl From<OperatorError> for Failure {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Invalid(_) => Self::Usage(with_causes(&error)),
            _ => Self::Unavailable(with_causes(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Failed(&'static str, #[source] Option<Box<Failed>>);

    #[test]
    fn cause_is_printed_once() {
        let refused = || Some(Box::new(Failed("connection refused", None)));
        let twice = Failed("no answer: connection refused", refused());
        assert_eq!(with_causes(&twice), "no answer: connection refused");
        let once = Failed("can't renew", Some(Box::new(Failed("no answer", refused()))));
        assert_eq!(with_causes(&once), "can't renew: no answer: connection refused");
    }
}
