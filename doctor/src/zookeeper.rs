//! A ZooKeeper: its members, and all of them together. The client of the locks asks; this judges.

use std::{ops::RangeInclusive, time::Duration};

pub use crate::members::Member;
use crate::{
    check::{Check, Verdict},
    connections,
    members::{quorum, reports},
    version,
};

/// The first version with all requests that the locks use.
const USABLE: [u32; 2] = [3, 6];
/// The ttl that clients ask for, if none is given.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// What a member reports of itself.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Its version, unless it hides that.
    pub version: Option<String>,
    /// Whether it leads, follows or is alone, unless it hides that.
    pub mode: Option<String>,
    /// Whether it knows the session of another member's client.
    pub shares_sessions: bool,
    /// The ttls that it grants.
    pub ttls: RangeInclusive<Duration>,
    /// Its connections, unless it hides them.
    pub connections: Option<Connections>,
}

/// The connections of a member.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    /// How many it allows to each address; 0 without a limit.
    pub limit: u32,
    /// How many are open from the address that has the most.
    pub open: u32,
}

/// Judges what the members have reported, of which one has at least. `size` is the number of all members.
pub fn check(members: &[Member<MemberReport>], size: &Result<usize, String>) -> Vec<Check> {
    let belong_together = reports(members).all(|report| report.shares_sessions);
    let mut checks: Vec<_> = quorum(members, belong_together, size).collect();
    checks.extend(members.iter().filter_map(version));
    checks.push(ttl(members));
    checks.extend(members.iter().filter_map(connections));
    checks
}

fn version(member: &Member<MemberReport>) -> Option<Check> {
    const NAME: &str = "version";
    let MemberReport { version, mode, .. } = member.report.as_ref().ok()?;
    let (text, mode) = (version.as_deref(), mode.as_deref().unwrap_or("in an unseen mode"));
    let title = text.unwrap_or("of an unseen version");
    let found = format!("{} is ZooKeeper {title}, {mode}", member.address);
    let Some(version) = text.and_then(version::numbers) else {
        let cure = "find out whether it is ZooKeeper 3.6 or newer, or add srvr to its setting 4lw.commands.whitelist";
        return Some(Check::unseen(NAME, found, cure).lowered("a danger may be hidden here"));
    };
    Some(Check::ok(NAME, found).unless(
        version[..] >= USABLE[..],
        Verdict::Unfit,
        "it lacks requests that the locks use",
        "update ZooKeeper to 3.6 or newer",
    ))
}

/// A client that waits may have a connection for its session, and one that watches.
const WAITING_CONNECTIONS: i64 = 2;

/// What is in danger in an ensemble, where a renewal needs one more connection for a moment.
const RENEWALS_CONNECT: &str = "locks that are held, if there is no room for the new connection of a renewal; and further clients can't wait for a lock";

fn connections(member: &Member<MemberReport>) -> Option<Check> {
    const NAME: &str = "connections";
    let address = &member.address;
    let report = member.report.as_ref().ok()?;
    let check = match report.connections {
        Some(Connections { limit: 0, .. }) => Check::ok(NAME, format!("{address} has no limit")),
        Some(Connections { limit, open }) => {
            let check = connections::room(limit.into(), open.into(), WAITING_CONNECTIONS);
            Check { found: format!("{address}, for each address: {}", check.found), ..check }
        }
        None => {
            let found =
                format!("{address} does not show its limit of connections (maxClientCnxns)");
            let cure = "add conf and cons to its setting 4lw.commands.whitelist";
            Check::unseen(NAME, found, cure).lowered(
                "no lock that is held; but it may have no room for the connections of waiting clients",
            )
        }
    };
    let why = match report.mode.as_deref() {
        Some("standalone") => check.why,
        _ => check.why.map(|_| RENEWALS_CONNECT.into()),
    };
    Some(Check { why, ..check })
}

/// The ttls that all members grant. The range is empty if there are none.
fn granted(members: &[Member<MemberReport>]) -> RangeInclusive<Duration> {
    let shortest = reports(members).map(|report| *report.ttls.start()).max();
    let longest = reports(members).map(|report| *report.ttls.end()).min();
    shortest.unwrap_or_default()..=longest.unwrap_or(Duration::MAX)
}

/// The ttl nearest to this one that all members grant.
pub fn nearest_ttl(members: &[Member<MemberReport>], ttl: Duration) -> Duration {
    let granted = granted(members);
    ttl.min(*granted.end()).max(*granted.start())
}

fn ttl(members: &[Member<MemberReport>]) -> Check {
    let granted = granted(members);
    let [shortest, longest] =
        [granted.start(), granted.end()].map(|ttl| humantime::format_duration(*ttl));
    let set_all = "set the same minSessionTimeout and maxSessionTimeout on all members";
    let mut ranges = reports(members).map(|report| &report.ttls);
    let first = ranges.next();
    Check::ok("ttl", format!("the members grant a ttl from {shortest} to {longest}"))
        .unless(!granted.is_empty(), Verdict::Unfit, "no ttl is granted by all members", set_all)
        .unless(
            granted.contains(&DEFAULT_TTL),
            Verdict::Warning,
            "no token; but a command without --ttl asks for 30 s, and is rejected",
            "give --ttl, or change minSessionTimeout and maxSessionTimeout on all members",
        )
        .unless(
            ranges.all(|range| Some(range) == first),
            Verdict::Warning,
            "no token; but the members grant different ttls, so another one is granted or rejected by chance",
            set_all,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(
        version: Option<&str>,
        shares_sessions: bool,
        (from, to): (u64, u64),
    ) -> Member<MemberReport> {
        let report = MemberReport {
            version: version.map(str::to_owned),
            mode: None,
            shares_sessions,
            ttls: Duration::from_secs(from)..=Duration::from_secs(to),
            connections: None,
        };
        Member { address: "n1:2181".to_owned(), report: Ok(report) }
    }

    fn verdict(
        name: &str,
        members: &[Member<MemberReport>],
        size: Result<usize, String>,
    ) -> Verdict {
        let checks = check(members, &size);
        checks.iter().filter(|check| check.name == name).map(|check| check.verdict).max().unwrap()
    }

    #[test]
    fn versions_are_judged_and_an_unknown_one_is_a_warning() {
        for (text, expected) in [
            (Some("3.5.10"), Verdict::Unfit),
            (Some("3.6.0"), Verdict::Ok),
            (Some("3.10.1"), Verdict::Ok),
            (Some("4.0.0"), Verdict::Ok),
            (Some("unknown"), Verdict::Warning),
            (None, Verdict::Warning),
        ] {
            assert_eq!(
                verdict("version", &[member(text, true, (4, 40))], Ok(1)),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn members_that_do_not_belong_together_or_are_not_named_are_found() {
        let unseen = || Err("no permission".to_owned());
        for (shares, size, expected) in [
            (&[true, true, true][..], Ok(3), Verdict::Ok),
            (&[true, true], Ok(3), Verdict::Warning),
            (&[true], unseen(), Verdict::Warning),
            (&[true, false, true], Ok(3), Verdict::Unfit),
        ] {
            let members = shares.iter().map(|&shares| member(None, shares, (4, 40)));
            assert_eq!(
                verdict("quorum", &members.collect::<Vec<_>>(), size),
                expected,
                "{shares:?}"
            );
        }
    }

    #[test]
    fn connections_of_one_address_are_compared_with_the_limit() {
        for (connections, expected) in [
            (Some((60, 40)), Verdict::Ok),
            (Some((60, 41)), Verdict::Warning),
            (Some((60, 60)), Verdict::Warning),
            (Some((0, 500)), Verdict::Ok),
            (None, Verdict::Warning),
        ] {
            let mut member = member(None, true, (4, 40));
            let report = member.report.as_mut().unwrap();
            report.connections = connections.map(|(limit, open)| Connections { limit, open });
            assert_eq!(verdict("connections", &[member], Ok(1)), expected, "{connections:?}");
        }
    }

    /// There, a renewal needs another connection.
    #[test]
    fn limit_of_connections_endangers_held_locks_only_in_an_ensemble() {
        for (mode, is_danger) in
            [(Some("standalone"), false), (Some("follower"), true), (None, true)]
        {
            for connections in [Some(Connections { limit: 60, open: 60 }), None] {
                let mut member = member(None, true, (4, 40));
                let report = member.report.as_mut().unwrap();
                (report.mode, report.connections) = (mode.map(str::to_owned), connections);
                let why = super::connections(&member).unwrap().why.unwrap();
                assert_eq!(why.starts_with("locks that are held"), is_danger, "{mode:?}: {why}");
            }
        }
    }

    #[test]
    fn ttls_are_judged_by_what_all_members_grant() {
        for (limits, expected, test_secs) in [
            (&[(4, 40)][..], Verdict::Ok, 10),
            (&[(4, 40), (4, 40)], Verdict::Ok, 10),
            (&[(4, 40), (4, 60)], Verdict::Warning, 10),
            (&[(1, 6)], Verdict::Warning, 6),
            (&[(40, 400)], Verdict::Warning, 40),
            (&[(4, 40), (50, 60)], Verdict::Unfit, 50),
        ] {
            let members: Vec<_> = limits.iter().map(|&limits| member(None, true, limits)).collect();
            assert_eq!(verdict("ttl", &members, Ok(members.len())), expected, "{limits:?}");
            let nearest = nearest_ttl(&members, Duration::from_secs(10));
            assert_eq!(nearest, Duration::from_secs(test_secs), "{limits:?}");
        }
    }
}
