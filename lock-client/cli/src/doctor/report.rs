//! The report of the doctor, as JSON or as text.

use std::io::{self, Write};

use lock_client::redlock::majority;
use serde::Serialize;

use super::{
    facts::Facts,
    finding::{Finding, Severity},
    version,
};
use crate::{
    failure::Failure,
    stdout::{print, print_bytes},
};

/// The findings on one server.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The worst severity.
    verdict: Severity,
    /// The server's name and version, if it reports them.
    server: Option<String>,
    /// The user of the connection, if there is one.
    user: Option<String>,
    /// Whether the server was not asked.
    #[serde(skip)]
    is_unchecked: bool,
    findings: Vec<Finding>,
}

/// The findings on a Redlock cluster.
#[derive(Debug, Serialize)]
pub(super) struct ClusterReport {
    /// The worst severity. A node that can't be used counts as a warning: the others are enough.
    verdict: Severity,
    /// The findings on all nodes together.
    findings: Vec<Finding>,
    nodes: Vec<NodeReport>,
}

/// The findings on a node.
#[derive(Debug, Serialize)]
pub(super) struct NodeReport {
    /// Its address, without a password.
    node: String,
    #[serde(flatten)]
    report: Report,
}

impl Report {
    pub(super) fn new(facts: &Facts, findings: Vec<Finding>) -> Self {
        Self {
            verdict: worst(&findings),
            server: version::server(facts),
            user: Some(facts.user().to_owned()),
            is_unchecked: false,
            findings,
        }
    }

    /// The report on a server of this name and version.
    pub(super) fn from_findings(
        server: String,
        user: Option<String>,
        findings: Vec<Finding>,
    ) -> Self {
        let verdict = worst(&findings);
        Self { verdict, server: Some(server), user, is_unchecked: false, findings }
    }

    /// The report on a server that doesn't answer.
    pub(super) fn unreachable(finding: Finding) -> Self {
        let verdict = finding.severity;
        Self { verdict, server: None, user: None, is_unchecked: false, findings: vec![finding] }
    }

    /// The report on a server that was not asked, because `--locks` does not name it.
    pub(super) fn unchecked(finding: Finding) -> Self {
        Self { is_unchecked: true, ..Self::unreachable(finding) }
    }

    fn server(&self) -> String {
        let server = self.server.as_deref().unwrap_or("a server that does not report its version");
        match &self.user {
            Some(user) => format!("{server}, as user {user}"),
            None if self.is_unchecked => "not checked, because --locks does not name it".to_owned(),
            None if self.server.is_some() => server.to_owned(),
            None => "a server that does not answer".to_owned(),
        }
    }
}

impl ClusterReport {
    pub(super) fn new(findings: Vec<Finding>, nodes: Vec<NodeReport>) -> Self {
        let unusable = |finding: &Finding| finding.severity == Severity::Unusable;
        let usable = nodes.iter().filter(|node| !node.report.findings.iter().any(unusable)).count();
        let lacks_majority = usable < majority(nodes.len());
        let node_severity = |node: &NodeReport| {
            let findings = node.report.findings.iter().map(|finding| finding.severity);
            let severity = findings.map(|severity| match severity {
                Severity::Unusable if !lacks_majority => Severity::Warning,
                severity => severity,
            });
            severity.max()
        };
        let verdict = nodes.iter().filter_map(node_severity).chain([worst(&findings)]).max();
        Self { verdict: verdict.expect("every check has a finding"), findings, nodes }
    }
}

impl NodeReport {
    pub(super) fn new(node: &str, report: Report) -> Self {
        Self { node: node.to_owned(), report }
    }
}

/// A report that can be printed.
pub(super) trait Print: Serialize + Sized {
    /// The worst severity.
    fn verdict(&self) -> Severity;

    /// Writes the report as text for people.
    fn write_text(&self, out: &mut Vec<u8>) -> io::Result<()>;

    /// Prints the report as text for people.
    fn print_text(&self) -> Result<(), Failure> {
        let mut text = Vec::new();
        self.write_text(&mut text).expect("memory can be written to");
        print_bytes(&text)
    }

    /// Prints the report as one JSON document.
    fn print_json(&self) -> Result<(), Failure> {
        print(self)
    }
}

impl Print for Report {
    fn verdict(&self) -> Severity {
        self.verdict
    }

    fn write_text(&self, out: &mut Vec<u8>) -> io::Result<()> {
        writeln!(out, "{}\n", self.server())?;
        write_findings(&self.findings, out)?;
        writeln!(out, "\n{}", conclusion(self.verdict))
    }
}

impl Print for ClusterReport {
    fn verdict(&self) -> Severity {
        self.verdict
    }

    fn write_text(&self, out: &mut Vec<u8>) -> io::Result<()> {
        for NodeReport { node, report } in &self.nodes {
            writeln!(out, "{node}: {}\n", report.server())?;
            write_findings(&report.findings, out)?;
            writeln!(out)?;
        }
        writeln!(out, "all {} nodes together\n", self.nodes.len())?;
        write_findings(&self.findings, out)?;
        writeln!(out, "\n{}", conclusion(self.verdict))
    }
}

fn worst(findings: &[Finding]) -> Severity {
    let worst = findings.iter().map(|finding| finding.severity).max();
    worst.expect("every check has a finding")
}

fn write_findings(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    for finding in findings {
        let Finding { check, severity, found, endangers, cure } = finding;
        writeln!(out, "{:<10}  {check}: {found}", label(*severity))?;
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
    Ok(())
}

fn conclusion(verdict: Severity) -> &'static str {
    match verdict {
        Severity::Ok => "no token can be lost, as far as this server reports",
        Severity::Warning => "no danger of losing a token was seen; read the warnings",
        Severity::Unseen => "could not check whether a token can be lost",
        Severity::Unusable => "this lock service can't be used",
        Severity::TokenLoss => {
            "a token can be lost, and issued again: then only a storage that checks the holder too \
                 keeps two holders apart"
        }
    }
}

fn label(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Warning => "warning",
        Severity::Unseen => "NOT SEEN",
        Severity::Unusable => "unusable",
        Severity::TokenLoss => "TOKEN LOSS",
    }
}
