//! Why a command failed, and how each error becomes an exit code and a message.

use std::{error::Error, io, iter::successors};

use crate::{exit_code, signals::Received};
use lock_client::{
    AcquireError, InvalidUrl, LockServiceError, Lost, RenewError,
    backend::BackendError,
    redlock::{InvalidNodes, LongTtl, operator::OperatorError},
    storage::{FencedError, StorageError},
};

#[derive(Debug)]
pub(crate) enum Failure {
    /// The exit code, and the message for stderr.
    Message(u8, String),
    /// The exit code. Everything is printed already.
    Reported(u8),
    /// A signal ended the work. The process ends by the same one.
    Signal(i32),
    /// The same, and nothing is waited for any longer: no answer to a release, no try that is being undone.
    Interrupted(i32),
}

impl Failure {
    /// The arguments or the environment are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Message(exit_code::USAGE, message.into())
    }

    /// The lock service or the storage did not answer, or rejected the request.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::Message(exit_code::UNAVAILABLE, message.into())
    }

    /// The output could not be written to stdout.
    pub(crate) fn cannot_print(error: io::Error) -> Self {
        Self::Message(exit_code::CANNOT_PRINT, format!("can't print: {error}"))
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match *self {
            Self::Message(code, _) | Self::Reported(code) => code,
            Self::Signal(signal) | Self::Interrupted(signal) => exit_code::ended_by_signal(signal),
        }
    }

    /// The message for stderr, if there is something left to print.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::Message(_, message) => Some(message),
            _ => None,
        }
    }

    /// A request that is wrong itself.
    fn invalid(error: &(dyn Error + 'static)) -> Self {
        let mut text = with_causes(error);
        let causes = successors(Some(error), |&error| error.source());
        if let Some(long) = causes.filter_map(|cause| cause.downcast_ref::<LongTtl>()).next() {
            text += &format!("; give --ttl {} or less", long.longest());
        }
        Self::usage(text)
    }

    fn invalid_url(error: &InvalidUrl) -> Self {
        Self::usage(format!("{error} (a space within a URL is %20): see --help"))
    }

    /// A lock service that did not answer, or rejected the request.
    fn from_service(error: &dyn Error) -> Self {
        let error = with_causes(error);
        // Redis answers a script without a password by an error about the length of the script.
        let needs_password = [r#""NOAUTH": "#, "Protocol error: unauthenticated"]
            .iter()
            .any(|words| error.contains(words));
        Self::unavailable(if needs_password {
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
    Received => |received| Self::Signal(received.signal.as_raw());
    AcquireError => |error| match error {
        AcquireError::Invalid { .. } => Self::invalid(error),
        error => Self::from_service(error),
    };
    LockServiceError => |error| Self::from_service(error);
    Lost => |error| Self::Message(exit_code::LEASE_LOST, with_causes(error));
    RenewError => |error| match error {
        RenewError::Lost(lost) => Self::Message(exit_code::LEASE_LOST, with_causes(lost)),
        RenewError::LockService { source: BackendError::Invalid(_), .. } => Self::invalid(error),
        error => Self::from_service(error),
    };
    FencedError => |error| {
        let text = with_causes(error);
        match error {
            FencedError::Lost { rejection: Some(_), .. } => {
                Self::Message(exit_code::TOKEN_REJECTED, text)
            }
            FencedError::Lost { .. } => Self::Message(exit_code::LEASE_LOST, text),
            _ => Self::unavailable(with_hint(text)),
        }
    };
    StorageError => |error| Self::unavailable(with_hint(with_causes(error)));
    InvalidUrl => |error| Self::invalid_url(error);
    InvalidNodes => |error| match error {
        InvalidNodes::Url(error) => Self::invalid_url(error),
        error => Self::usage(with_causes(error)),
    };
    OperatorError => |error| match error {
        OperatorError::Invalid(_) => Self::usage(with_causes(error)),
        error => Self::unavailable(with_causes(error)),
    };
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
