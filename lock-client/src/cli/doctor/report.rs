//! What the doctor prints.

use std::io::{self, Write};

use serde::Serialize;

use super::{
    Failure,
    facts::Facts,
    finding::{Finding, Severity},
    version,
};
use crate::cli::events::{print, print_bytes};

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The worst severity.
    verdict: Severity,
    /// The server's name and version, if it tells.
    server: Option<String>,
    /// Whom the connection belongs to.
    user: String,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(facts: &Facts, findings: Vec<Finding>) -> Self {
        let verdict = findings.iter().map(|finding| finding.severity).max();
        Self {
            verdict: verdict.expect("each check finds something"),
            server: version::server(facts),
            user: facts.user().to_owned(),
            findings,
        }
    }

    pub(super) fn verdict(&self) -> Severity {
        self.verdict
    }

    /// Prints one JSON document.
    pub(super) fn print_json(&self) -> Result<(), Failure> {
        print(self)
    }

    /// Prints it for people.
    pub(super) fn print_text(&self) -> Result<(), Failure> {
        let mut text = Vec::new();
        self.write_text(&mut text).expect("memory can be written to");
        print_bytes(&text)
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let server = self.server.as_deref().unwrap_or("a server that does not tell its version");
        writeln!(out, "{server}, as user {}\n", self.user)?;
        for finding in &self.findings {
            let Finding { check, severity, found, endangers, cure } = finding;
            writeln!(out, "{:<10}  {check}: {found}", mark(*severity))?;
            if let Some(endangers) = endangers {
                writeln!(out, "{:12}endangers: {endangers}", "")?;
            }
            if let Some(cure) = cure {
                writeln!(out, "{:12}cure: {}", "", cure.advice)?;
                for command in &cure.commands {
                    writeln!(out, "{:14}at once: {command}", "")?;
                }
                for line in &cure.redis_conf {
                    writeln!(out, "{:14}in redis.conf: {line}", "")?;
                }
            }
        }
        writeln!(out, "\n{}", self.conclusion())
    }

    fn conclusion(&self) -> &'static str {
        match self.verdict {
            Severity::Ok => "no token can be lost, as far as this server tells",
            Severity::Warning => {
                "nothing was seen by which a token could be lost; mind the warnings"
            }
            Severity::Unseen => "it could not be seen whether a token could be lost",
            Severity::Unusable => "no locks can be kept here",
            Severity::TokenLoss => {
                "a token could be lost, and issued again: what then stands between two holders is a \
                 storage that checks the holder, too"
            }
        }
    }
}

fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Warning => "warning",
        Severity::Unseen => "NOT SEEN",
        Severity::Unusable => "unusable",
        Severity::TokenLoss => "TOKEN LOSS",
    }
}
