//! What a check has found.

use serde::Serialize;

use super::connection::Refusal;

/// How bad it is, the worst last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// Nothing is endangered.
    Ok,
    /// Something is endangered, but no token.
    Warning,
    /// It could not be seen whether a token is endangered.
    Unseen,
    /// No lock can be kept here.
    Unusable,
    /// The counter may go back, and a token be issued twice.
    TokenLoss,
}

/// What a check has found.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    pub(super) found: String,
    /// What is endangered by it, unless nothing is.
    pub(super) endangers: Option<&'static str>,
    /// What cures it, unless nothing has to.
    pub(super) cure: Option<Cure>,
}

/// What cures a finding.
#[derive(Debug, Serialize)]
pub(super) struct Cure {
    /// What to do.
    pub(super) advice: String,
    /// The commands for Redis that do it at once.
    pub(super) commands: Vec<String>,
    /// The lines of redis.conf that keep it so.
    pub(super) redis_conf: Vec<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, found: found.into(), endangers: None, cure: None }
    }

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

    /// What could not be seen is not taken to be well.
    pub(super) fn unseen(
        severity: Severity,
        check: &'static str,
        what: &str,
        refusal: Option<&Refusal>,
    ) -> Self {
        let why = refusal.map_or("this server doesn't tell it".to_owned(), Refusal::to_string);
        Self::bad(
            severity,
            check,
            format!("{what} could not be seen: {why}"),
            match severity {
                Severity::Unseen => "a danger to the tokens may be hidden here",
                _ => "a danger may be hidden here",
            },
            Cure::advice(
                "let a user run this who may use INFO, CONFIG GET, TIME and PUBSUB; where a service \
                 keeps these to itself, look at the settings in its own console",
            ),
        )
    }
}

impl Cure {
    pub(super) fn advice(advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), commands: Vec::new(), redis_conf: Vec::new() }
    }

    /// The settings to change.
    pub(super) fn settings(advice: impl Into<String>, settings: &[(&str, &str)]) -> Self {
        let lines = |prefix: &str| {
            settings.iter().map(|(name, value)| format!("{prefix}{name} {value}")).collect()
        };
        Self { advice: advice.into(), commands: lines("CONFIG SET "), redis_conf: lines("") }
    }
}
