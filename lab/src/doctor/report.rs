//! The report of a doctor.

use std::{fmt, time::SystemTime};

use serde::Serialize;

use super::check::Check;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The day, in UTC.
    date: String,
    store: String,
    /// Whether nothing is wrong.
    pub(super) holds: bool,
    checks: Vec<Check>,
}

impl Report {
    pub(super) fn new(store: String, checks: Vec<Check>) -> Self {
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let date = now.split('T').next().unwrap_or_default().to_owned();
        let holds = checks.iter().all(|check| check.ok != Some(false));
        Self { date, store, holds, checks }
    }

    /// Returns a row of a table in Markdown: date, store, verdict, and what was found.
    pub(super) fn markdown_row(&self) -> String {
        let verdict = if self.holds { "nothing is wrong" } else { "**unsafe**" };
        let found = self.checks.iter().map(|Check { name, ok, found, .. }| match ok {
            Some(true) => format!("{name}: {found}"),
            Some(false) => format!("**{name}: {found}**"),
            None => format!("{name}? {found}"),
        });
        let cells = [&self.date, &self.store, verdict, &found.collect::<Vec<_>>().join("; ")];
        format!("| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.store)?;
        for Check { name, ok, found, why } in &self.checks {
            let mark = match ok {
                Some(true) => "ok",
                Some(false) => "WRONG",
                None => "?",
            };
            writeln!(f, "{mark:>5}  {name}: {found}")?;
            if *ok != Some(true) {
                writeln!(f, "       {why}")?;
            }
        }
        let verdict = match self.holds {
            true => "Nothing is wrong. Decide what is marked with a question mark yourself.",
            false => "THE FENCE IS NOT SAFE ON THIS STORE.",
        };
        writeln!(f, "\n{verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_check_is_enough_and_undecided_ones_are_shown() {
        let report = |ok| {
            let checks = [Check::new("a|b", ok, "1", "because"), Check::unseen("the disk")];
            Report::new("Store 7".to_owned(), checks.to_vec())
        };
        assert!(report(Some(true)).holds && report(None).holds && !report(Some(false)).holds);
        let row = report(Some(false)).markdown_row();
        let (date, rest) = row.split_at("| 2026-11-25".len());
        assert!(date[2..].chars().all(|digit| digit.is_ascii_digit() || digit == '-'), "{row}");
        let expected = r" | Store 7 | **unsafe** | **a\|b: 1**; unseen? not visible from here |";
        assert_eq!(rest, expected);
        let text = report(Some(true)).to_string();
        assert!(text.contains("   ok  a|b: 1\n") && text.contains("    ?  unseen"), "{text}");
        assert!(!text.contains("because") && text.contains("the disk"), "{text}");
    }
}
