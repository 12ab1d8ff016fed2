//! What the error of a request says about the store, and about what happened to the request.

use std::{error::Error as _, iter};

use ::object_store::Error;

/// How the client of a store begins its error for an answer. The three digits of the status follow.
const ANSWER: &str = "Server returned non-2xx status code: ";
/// How many words it puts before that, if this was the only answer: `Error performing PUT URL in 12ms -`.
/// After a repetition there are more, which say how often it has repeated the request.
const WORDS: usize = 7;

/// Why a request failed.
///
/// Only the texts of the errors of `object_store` have the status of an answer, and whether there were
/// earlier ones. Texts that are not as expected make a failure unknown, which is the safe side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The status of the last answer.
    status: Option<u16>,
    /// Whether the client of the store has sent the request once.
    is_only_attempt: bool,
    /// Whether the client of the store has sent nothing, because it can't write on conditions.
    is_unsupported: bool,
}

impl Failure {
    /// Returns what an error says.
    pub fn from_error(error: &Error) -> Self {
        if matches!(error, Error::NotImplemented { .. } | Error::NotSupported { .. }) {
            return Self { is_unsupported: true, ..Self::default() };
        }
        // The error of the answer, and before it that of the request.
        let mut request = error.to_string();
        let causes = iter::successors(error.source(), |&cause| cause.source());
        for cause in causes.map(ToString::to_string) {
            if let Some(answer) = cause.strip_prefix(ANSWER) {
                let status = answer.get(..3).and_then(|status| status.parse().ok());
                let before = request.strip_suffix(&cause).unwrap_or_default();
                let is_only_attempt = before.starts_with("Error performing PUT ")
                    && before.split_whitespace().count() == WORDS;
                return Self { status, is_only_attempt, is_unsupported: false };
            }
            request = cause;
        }
        Self::default()
    }

    /// Whether the store, or its client, has no writes on conditions: it can keep no fence.
    pub fn has_no_conditions(&self) -> bool {
        self.is_unsupported || self.status == Some(501)
    }

    /// Whether the store takes no more writes at this moment. Some take one a second for each key.
    pub fn is_throttled(&self) -> bool {
        self.status == Some(429)
    }

    /// Whether the store has rejected the write for certain. It was not applied, and never will be.
    ///
    /// An answer of 4xx to the only request is a rejection, and 501, too. The exceptions are 412, which may be the echo
    /// of this very write, and 408: a proxy gives up with it. The answer is not to the only request if a proxy repeats
    /// a `PUT`, so none before the store may do so. After a repetition by the store's client, the last answer says
    /// nothing about the earlier ones.
    pub fn is_rejection(&self) -> bool {
        let is_rejection = matches!(self.status, Some(400..=407 | 409..=411 | 413..=499 | 501));
        self.is_unsupported || self.is_only_attempt && is_rejection
    }

    /// Whether the same write may succeed a moment later. 409: another write of the object is under way.
    pub(super) fn is_momentary(&self) -> bool {
        matches!(self.status, Some(409 | 429)) || !self.has_no_conditions() && !self.is_rejection()
    }

    /// Says of the error of a store without conditions that it has none.
    pub(super) fn explain(&self, error: Error) -> Error {
        if self.status != Some(501) {
            return error;
        }
        Error::NotImplemented {
            operation: "a write on a condition (If-Match, If-None-Match)".to_owned(),
            implementer: format!("the store: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    /// An error, and its source.
    #[derive(Debug)]
    struct Caused(String, Option<Box<Caused>>);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl std::error::Error for Caused {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    /// As the client of a store reports an answer.
    fn failure(request: &str, answer: &str) -> Failure {
        let answer = Caused(answer.to_owned(), None);
        let source = Box::new(Caused(format!("{request}{answer}"), Some(Box::new(answer))));
        Failure::from_error(&Error::Generic { store: "S3", source })
    }

    #[test]
    fn text_that_is_not_as_expected_proves_nothing() {
        let request = "Error performing PUT http://host/r in 12.3ms - ";
        let answer = "Server returned non-2xx status code: 429 Too Many Requests: slowly";
        let throttled = failure(request, answer);
        assert!(throttled.is_rejection() && throttled.is_throttled());
        for (request, answer) in [
            (
                "Error performing PUT http://host/r in 12.3ms, after 2 retries, max_retries: 2, retry_timeout: 5s  - ",
                answer,
            ),
            ("Error performing PUT http://host/r in 12.3ms (2 attempts) - ", answer),
            ("Error performing POST http://host/token in 12.3ms - ", answer),
            ("", answer),
            (request, "Server returned non-2xx status code: Too Many Requests"),
            (request, "Server returned non-2xx status code: 503 Slow Down"),
            (request, "Server returned error response: SlowDown"),
            (request, "error sending request"),
        ] {
            assert!(!failure(request, answer).is_rejection(), "{request}{answer}");
        }
        let precondition = Error::Precondition { path: "r".to_owned(), source: "412".into() };
        assert_eq!(Failure::from_error(&precondition), Failure::default());
    }
}
