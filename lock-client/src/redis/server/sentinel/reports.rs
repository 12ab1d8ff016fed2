//! What Sentinels report about a primary, and which server they name together.

use std::{cmp::Reverse, fmt};

pub(super) type Address = (String, u16);

#[derive(Debug)]
pub(super) struct Report {
    pub(super) sentinel: String,
    pub(super) address: Address,
    /// The number of the configuration. A failover increases it.
    pub(super) epoch: u64,
    pub(super) flags: String,
}

impl Report {
    fn is_leaving(&self) -> bool {
        self.flags.contains("_down") || self.is_being_replaced()
    }

    /// Whether enough Sentinels agreed that it is down, or a failover has begun.
    fn is_being_replaced(&self) -> bool {
        ["o_down", "failover_in_progress"].iter().any(|flag| self.flags.contains(flag))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sentinel, address: (host, port), flags, .. } = self;
        write!(f, "the Sentinel at {sentinel} reports {host}:{port} as {flags}")
    }
}

pub(super) struct Reports {
    majority: usize,
    all: Vec<Report>,
}

impl Reports {
    /// None so far, of so many Sentinels.
    pub(super) fn new(sentinels: usize) -> Self {
        Self { majority: sentinels / 2 + 1, all: Vec::new() }
    }

    pub(super) fn add(&mut self, report: Report) {
        self.all.push(report);
    }

    /// Whether a majority of the Sentinels names the same server.
    pub(super) fn agree(&self) -> bool {
        self.staying().any(|report| naming(self.staying(), report) >= self.majority)
    }

    /// Returns the servers to connect to, one after the other. The server that most Sentinels name is
    /// first; if several are named equally often, that of the newest configuration. Beside a server that
    /// a majority names, only servers of newer configurations follow.
    pub(super) fn candidates(&self) -> Vec<Address> {
        let mut named: Vec<_> = self.staying().filter(|report| self.is_usable(report)).collect();
        named.sort_by_key(|report| Reverse((naming(self.staying(), report), report.epoch)));
        let Some(first) = named.first().copied() else { return Vec::new() };
        let mut addresses = vec![first.address.clone()];
        for report in named {
            // A server of an older configuration was replaced, and may not have noticed.
            let is_newer = report.epoch > first.epoch;
            let may_follow = is_newer || (report.epoch == first.epoch && !self.agree());
            if may_follow && !addresses.contains(&report.address) {
                addresses.push(report.address.clone());
            }
        }
        addresses
    }

    /// Whether no other Sentinel says that the server is being replaced, and fewer call it down than up. A
    /// Sentinel may be cut off from the others, together with the old primary.
    fn is_usable(&self, named: &Report) -> bool {
        let is_replaced = self.leaving().any(|report| {
            report.address == named.address
                && report.is_being_replaced()
                && report.epoch >= named.epoch
        });
        !is_replaced && naming(self.leaving(), named) < naming(self.staying(), named)
    }

    fn staying(&self) -> impl Iterator<Item = &Report> {
        self.all.iter().filter(|report| !report.is_leaving())
    }

    /// The reports of servers that are down, or are being replaced.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &Report> {
        self.all.iter().filter(|report| report.is_leaving())
    }
}

/// The number of reports that name the same server as this one.
fn naming<'a>(reports: impl Iterator<Item = &'a Report>, one: &Report) -> usize {
    reports.filter(|report| report.address == one.address).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of three Sentinels: host, epoch and flags.
    fn reports(of: &[(&str, u64, &str)]) -> Reports {
        let mut reports = Reports::new(3);
        for (host, epoch, flags) in of {
            let (address, flags) = (((*host).to_owned(), 6379), format!("master{flags}"));
            reports.add(Report { sentinel: "s".to_owned(), address, epoch: *epoch, flags });
        }
        reports
    }

    #[test]
    fn servers_are_tried_in_the_order_in_which_sentinels_name_them() {
        let (down, moving) = (",s_down", ",failover_in_progress");
        for (named, agree, expected) in [
            (vec![("a", 1, "")], false, vec!["a"]),
            (vec![("a", 1, ""), ("b", 1, ""), ("b", 1, "")], true, vec!["b"]),
            // A newer configuration that not all Sentinels know yet, and an older one.
            (vec![("a", 1, ""), ("b", 2, ""), ("a", 1, "")], true, vec!["a", "b"]),
            (vec![("a", 1, ""), ("b", 2, ""), ("b", 2, "")], true, vec!["b"]),
            (vec![("a", 1, ""), ("b", 2, "")], false, vec!["b"]),
            // Servers that are down, or are being replaced.
            (vec![("a", 1, down), ("a", 1, down), ("a", 1, down)], false, vec![]),
            (vec![("a", 1, ""), ("a", 1, down), ("a", 1, down)], false, vec![]),
            (vec![("a", 1, ""), ("a", 1, ""), ("a", 2, moving)], true, vec![]),
            (vec![("a", 1, ""), ("a", 1, ""), ("a", 1, ",s_down,o_down")], true, vec![]),
            (vec![("a", 2, ""), ("a", 2, ""), ("a", 1, moving)], true, vec!["a"]),
            (vec![("a", 1, ""), ("a", 1, ""), ("a", 1, down)], true, vec!["a"]),
            (vec![("a", 1, ""), ("a", 1, down)], false, vec![]),
            (vec![("b", 2, ""), ("a", 1, down), ("a", 1, down)], false, vec!["b"]),
            (vec![], false, vec![]),
        ] {
            let reports = reports(&named);
            assert_eq!(reports.agree(), agree, "{named:?}");
            let candidates: Vec<_> =
                reports.candidates().into_iter().map(|(host, _)| host).collect();
            assert_eq!(candidates, expected, "{named:?}");
        }
    }
}
