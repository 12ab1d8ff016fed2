//! What the doctor prints.

use std::io::{self, Write};

use serde::Serialize;

use super::{
    Failure,
    facts::Facts,
    finding::{Finding, Severity},
    version,
};
use crate::events::{print, print_bytes};
use lock_client::redlock::majority;

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The worst severity.
    verdict: Severity,
    /// The server's name and version, if it tells.
    server: Option<String>,
    /// Whom the connection belongs to; nobody if there is none.
    user: Option<String>,
    findings: Vec<Finding>,
}

/// Everything that was found of a cluster of nodes.
#[derive(Debug, Serialize)]
pub(super) struct ClusterReport {
    /// The worst severity. A node that can't be used is a warning: the others may do without it.
    verdict: Severity,
    /// What all of them are together.
    findings: Vec<Finding>,
    nodes: Vec<NodeReport>,
}

/// Everything that was found of a node.
#[derive(Debug, Serialize)]
pub(super) struct NodeReport {
    /// Where it is, without a password.
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
            findings,
        }
    }

    /// Of a server that doesn't answer.
    pub(super) fn of_silence(finding: Finding) -> Self {
        Self { verdict: finding.severity, server: None, user: None, findings: vec![finding] }
    }

    fn server(&self) -> String {
        let server = self.server.as_deref().unwrap_or("a server that does not tell its version");
        match &self.user {
            Some(user) => format!("{server}, as user {user}"),
            None => "a server that does not answer".to_owned(),
        }
    }
}

impl ClusterReport {
    pub(super) fn new(findings: Vec<Finding>, nodes: Vec<NodeReport>) -> Self {
        let unusable = |finding: &Finding| finding.severity == Severity::Unusable;
        let usable = nodes.iter().filter(|node| !node.report.findings.iter().any(unusable)).count();
        let missed = usable < majority(nodes.len());
        let of_a_node = |node: &NodeReport| {
            let findings = node.report.findings.iter().map(|finding| finding.severity);
            let severity = findings.map(|severity| match severity {
                Severity::Unusable if !missed => Severity::Warning,
                severity => severity,
            });
            severity.max()
        };
        let verdict = nodes.iter().filter_map(of_a_node).chain([worst(&findings)]).max();
        Self { verdict: verdict.expect("each check finds something"), findings, nodes }
    }
}

impl NodeReport {
    pub(super) fn new(node: &str, report: Report) -> Self {
        Self { node: node.to_owned(), report }
    }
}

/// What can be told of what was found.
pub(super) trait Tell: Serialize + Sized {
    /// The worst severity.
    fn verdict(&self) -> Severity;

    /// Tells it to people.
    fn write_text(&self, out: &mut Vec<u8>) -> io::Result<()>;

    /// Prints it: as one JSON document, or for people.
    fn print(&self, as_json: bool) -> Result<Severity, Failure> {
        if as_json {
            print(self)?;
        } else {
            let mut text = Vec::new();
            self.write_text(&mut text).expect("memory can be written to");
            print_bytes(&text)?;
        }
        Ok(self.verdict())
    }
}

impl Tell for Report {
    fn verdict(&self) -> Severity {
        self.verdict
    }

    fn write_text(&self, out: &mut Vec<u8>) -> io::Result<()> {
        writeln!(out, "{}\n", self.server())?;
        write_findings(&self.findings, out)?;
        writeln!(out, "\n{}", conclusion(self.verdict))
    }
}

impl Tell for ClusterReport {
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
    worst.expect("each check finds something")
}

fn write_findings(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    for finding in findings {
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
    Ok(())
}

fn conclusion(verdict: Severity) -> &'static str {
    match verdict {
        Severity::Ok => "no token can be lost, as far as this server tells",
        Severity::Warning => "nothing was seen by which a token could be lost; mind the warnings",
        Severity::Unseen => "it could not be seen whether a token could be lost",
        Severity::Unusable => "no locks can be kept here",
        Severity::TokenLoss => {
            "a token could be lost, and issued again: what then stands between two holders is a \
                 storage that checks the holder, too"
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
