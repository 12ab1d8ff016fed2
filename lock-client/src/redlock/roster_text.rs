//! The text of a roster, which the nodes keep, and which the scripts compare as it is.
//!
//! The first line is `CLUSTER TERM MAX_TTL_MS`. Then each seat has a line `SINCE PROCESS ADDRESS`.
//! There is a line feed between lines, and none after the last. So equal rosters have equal texts.

use std::fmt;

use super::roster::{Roster, Seat};

impl fmt::Display for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, term, max_ttl_ms, seats } = self;
        write!(f, "{cluster} {term} {max_ttl_ms}")?;
        seats.iter().try_for_each(|Seat { address, process, since }| {
            write!(f, "\n{since} {process} {address}")
        })
    }
}

impl Roster {
    /// Parses a text; `None` if it is not what this version writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let (cluster, term, max_ttl_ms) = three_words(lines.next()?)?;
        let seats = lines.map(|line| {
            let (since, process, address) = three_words(line)?;
            let (process, address) = (process.to_owned(), address.to_owned());
            Some(Seat { address, process, since: since.parse().ok()? })
        });
        let roster = Self {
            cluster: cluster.to_owned(),
            term: term.parse().ok()?,
            max_ttl_ms: max_ttl_ms.parse().ok()?,
            seats: seats.collect::<Option<_>>()?,
        };
        // The rules rely on a majority of at least one, and on one seat for each process.
        let seats = &roster.seats;
        let mut processes: Vec<_> = seats.iter().map(|seat| &seat.process).collect();
        processes.sort_unstable();
        let is_once = processes.windows(2).all(|pair| pair[0] != pair[1]);
        let is_known = |seat: &Seat| (1..=roster.term).contains(&seat.since);
        if seats.is_empty() || !is_once || !seats.iter().all(is_known) {
            return None;
        }
        // Two texts of one roster would be two rosters for the scripts.
        (roster.to_string() == text).then_some(roster)
    }
}

fn three_words(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.splitn(3, ' ');
    Some((words.next()?, words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_parsed_as_it_was_written() {
        let members = ["a", "b", "c"].map(|name| (format!("{name}:6379"), format!("run{name}")));
        let roster = Roster::first("0123ab".to_owned(), 300_000, members);
        let next = roster.next(1, "d:6380/2".to_owned(), "rund".to_owned());
        let text = "0123ab 2 300000\n1 runa a:6379\n2 rund d:6380/2\n1 runc c:6379";
        assert_eq!(next.to_string(), text);
        assert_eq!(Roster::parse(text), Some(next.clone()));
        assert!(next.follows(&roster));
        for other in [
            "",
            "0123ab 2 300000",
            &text.replace(" 2 300000", " 02 300000"),
            &format!("{text}\n"),
            &text.replace("1 runa", "01 runa"),
            &text.replace("1 runa", "0 runa"),
            &text.replace("2 rund", "3 rund"),
            &text.replace("rund", "runa"),
        ] {
            assert_eq!(Roster::parse(other), None, "{other:?}");
        }
    }
}
