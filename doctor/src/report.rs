//! The checks of one system, as text, as JSON, and as a row of Markdown.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::check::{Check, Verdict};

/// The exit code of a command that could not examine the system: `EX_UNAVAILABLE` of `sysexits.h`.
pub const NOT_EXAMINED: u8 = 69;

/// The checks of one system.
#[derive(Clone, Debug)]
pub struct Report {
    /// The system's name and version, or its address.
    pub system: String,
    /// The user of the connection, if the system has users.
    pub user: Option<String>,
    /// What was found. There is at least one check.
    pub checks: Vec<Check>,
    /// What no check sees.
    pub unseen: Option<String>,
    /// The nodes of a cluster, each with checks of its own.
    pub nodes: Vec<Report>,
    /// How many nodes may be unfit before the cluster is.
    pub dispensable_nodes: usize,
}

/// The document in JSON.
#[derive(Serialize)]
struct Document<'a> {
    verdict: Verdict,
    system: &'a str,
    user: Option<&'a str>,
    checks: &'a [Check],
    unseen: Option<&'a str>,
    nodes: &'a [Report],
}

impl Report {
    /// Makes a report of one system.
    pub fn new(system: impl Into<String>, user: Option<String>, checks: Vec<Check>) -> Self {
        let (unseen, nodes) = (None, Vec::new());
        Self { system: system.into(), user, checks, unseen, nodes, dispensable_nodes: 0 }
    }

    /// The worst verdict. As long as few nodes are unfit, each is a warning: the others are enough.
    pub fn verdict(&self) -> Verdict {
        let own = self.checks.iter().map(|check| check.verdict);
        let is_unfit = |node: &&Self| node.checks.iter().any(|it| it.verdict == Verdict::Unfit);
        let are_enough = self.nodes.iter().filter(is_unfit).count() <= self.dispensable_nodes;
        let of_nodes = self.nodes.iter().flat_map(|node| &node.checks).map(|it| match it.verdict {
            Verdict::Unfit if are_enough => Verdict::Warning,
            verdict => verdict,
        });
        own.chain(of_nodes).max().unwrap_or(Verdict::Unseen)
    }

    /// Returns a row of a table in Markdown: date, system, verdict, and what was found.
    pub fn markdown_row(&self, date: &str) -> String {
        let found = self.checks.iter().map(|Check { name, verdict, found, .. }| match verdict {
            Verdict::Ok => format!("{name}: {found}"),
            Verdict::Warning | Verdict::Unseen => format!("{name}? {found}"),
            Verdict::UnfitForFence | Verdict::Unfit => format!("**{name}: {found}**"),
        });
        let found = found.collect::<Vec<_>>().join("; ");
        let cells = [date, &self.system, &self.verdict().to_string(), &found];
        format!("| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
    }

    fn write_checks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => writeln!(f, "{}, as user {user}\n", self.system)?,
            None => writeln!(f, "{}\n", self.system)?,
        }
        for Check { name, verdict, found, why, cure } in &self.checks {
            writeln!(f, "{verdict:<15}  {name}: {found}")?;
            if let Some(why) = why {
                writeln!(f, "{:17}why: {why}", "")?;
            }
            if let Some(cure) = cure {
                writeln!(f, "{:17}cure: {}", "", cure.advice)?;
                for command in &cure.commands {
                    writeln!(f, "{:19}{command}", "")?;
                }
            }
        }
        Ok(())
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { system, user, checks, unseen, nodes, .. } = self;
        let (user, unseen) = (user.as_deref(), unseen.as_deref());
        Document { verdict: self.verdict(), system, user, checks, unseen, nodes }
            .serialize(serializer)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            node.write_checks(f)?;
            writeln!(f)?;
        }
        self.write_checks(f)?;
        if let Some(unseen) = &self.unseen {
            writeln!(f, "\nno check sees: {unseen}")?;
        }
        let conclusion = match self.verdict() {
            Verdict::Ok => "Nothing is wrong, as far as the checks see.",
            Verdict::Warning => "Nothing that was acknowledged is in danger; read the warnings.",
            Verdict::Unseen => "UNSEEN: something that was acknowledged may be lost.",
            Verdict::UnfitForFence => {
                "UNFIT FOR FENCE: what was acknowledged can be lost. Locks kept here need a storage that \
                 checks token and holder."
            }
            Verdict::Unfit => "UNFIT: it can't be used as it is.",
        };
        writeln!(f, "\n{conclusion}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[Verdict]) -> Report {
        let check = |verdict: &Verdict| match verdict {
            Verdict::Ok => Check::ok("a|b", "1"),
            verdict => Check::bad(*verdict, "a|b", "1", "because", "do this"),
        };
        Report::new("System 7", None, verdicts.iter().map(check).collect())
    }

    #[test]
    fn worst_check_decides_and_each_verdict_has_its_exit_code() {
        for (verdicts, worst, code) in [
            (&[Verdict::Ok][..], Verdict::Ok, 0),
            (&[Verdict::Ok, Verdict::Warning], Verdict::Warning, 0),
            (&[Verdict::Unseen, Verdict::Warning], Verdict::Unseen, 3),
            (&[Verdict::UnfitForFence, Verdict::Unseen], Verdict::UnfitForFence, 4),
            (&[Verdict::Unfit, Verdict::UnfitForFence], Verdict::Unfit, 1),
        ] {
            assert_eq!((report(verdicts).verdict(), worst.exit_code()), (worst, code));
        }
    }

    #[test]
    fn nodes_that_a_cluster_can_spare_are_a_warning() {
        let node = || report(&[Verdict::Unfit]);
        let cluster =
            |nodes: Vec<Report>| Report { nodes, dispensable_nodes: 1, ..report(&[Verdict::Ok]) };
        assert_eq!(cluster(vec![node(), report(&[Verdict::Ok])]).verdict(), Verdict::Warning);
        assert_eq!(cluster(vec![node(), node()]).verdict(), Verdict::Unfit);
        let at_risk = cluster(vec![node(), report(&[Verdict::UnfitForFence])]);
        assert_eq!(at_risk.verdict(), Verdict::UnfitForFence);
    }

    #[test]
    fn text_and_row_show_what_is_wrong() {
        let report = report(&[Verdict::Ok, Verdict::UnfitForFence]);
        let text = report.to_string();
        let wrong = "UNFIT FOR FENCE  a|b: 1\n                 why: because\n";
        assert!(text.contains(wrong) && text.contains("ok               a|b: 1\nUNFIT"), "{text}");
        let expected = r"| 2026-11-25 | System 7 | UNFIT FOR FENCE | a\|b: 1; **a\|b: 1** |";
        assert_eq!(report.markdown_row("2026-11-25"), expected);
    }
}
