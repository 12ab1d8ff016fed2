//! The result of a check.

use serde::Serialize;

use super::connection::Rejection;

/// How bad a finding is, the worst last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// Nothing is in danger.
    Ok,
    /// Something is in danger, but no token.
    Warning,
    /// The check could not see whether a token is in danger.
    Unseen,
    /// No lock can be kept here.
    Unusable,
    /// The counter may go back, and a token may be issued twice.
    TokenLoss,
}

/// The result of a check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    pub(super) found: String,
    /// What is in danger, if anything is.
    pub(super) endangers: Option<&'static str>,
    /// What to do, if anything needs to be done.
    pub(super) cure: Option<Cure>,
}

/// What to do about a finding.
#[derive(Debug, Serialize)]
pub(super) struct Cure {
    /// What to do, in words.
    pub(super) advice: String,
    /// The Redis commands for that, which take effect at once.
    pub(super) commands: Vec<String>,
    /// The lines of redis.conf that keep the effect.
    pub(super) redis_conf: Vec<String>,
}

impl Finding {
    /// A finding of nothing bad.
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, found: found.into(), endangers: None, cure: None }
    }

    /// A finding that someone must do something about.
    pub(super) fn bad(
        severity: Severity,
        check: &'static str,
        found: impl Into<String>,
        endangers: &'static str,
        cure: Cure,
    ) -> Self {
        let endangers = Some(endangers);
        Self { check, severity, found: found.into(), endangers, cure: Some(cure) }
    }

    /// A fact that could not be seen. It is not assumed to be good.
    pub(super) fn unseen(
        severity: Severity,
        check: &'static str,
        fact: &str,
        rejection: Option<&Rejection>,
    ) -> Self {
        let reason =
            rejection.map_or("this server doesn't report it".to_owned(), Rejection::to_string);
        Self::bad(
            severity,
            check,
            format!("{fact} could not be seen: {reason}"),
            match severity {
                Severity::Unseen => "a danger to the tokens may be hidden here",
                _ => "a danger may be hidden here",
            },
            Cure::advice(
                "run this as a user who may use INFO, CONFIG GET, TIME and PUBSUB; if a hosting \
                 service forbids these, look at the settings in its own console",
            ),
        )
    }
}

impl Cure {
    /// A cure in words only.
    pub(super) fn advice(advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), commands: Vec::new(), redis_conf: Vec::new() }
    }

    /// A change of settings.
    pub(super) fn settings(advice: impl Into<String>, settings: &[(&str, &str)]) -> Self {
        let lines = |prefix: &str| {
            settings.iter().map(|(name, value)| format!("{prefix}{name} {value}")).collect()
        };
        Self { advice: advice.into(), commands: lines("CONFIG SET "), redis_conf: lines("") }
    }
}
