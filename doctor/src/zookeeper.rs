//! A ZooKeeper: its members, and all of them together. The client of the locks asks; this judges.

use std::time::Duration;

use crate::{
    check::{Check, Verdict},
    members::{QUORUM, silent, unnamed},
};

/// The first version with all requests that the locks use.
const USABLE: (u32, u32) = (3, 6);
const TTL: &str = "ttl";
const UNUSABLE: &str = "locks can't be used here, or for no longer than their ttl";
/// The ttl that clients ask for, if none is given.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// A member that the URL names.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its address.
    pub address: String,
    /// What it reports, or why it does not answer. A member without a quorum reports nothing.
    pub report: Result<MemberReport, String>,
}

/// What a member reports of itself.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Its version, unless it hides that.
    pub version: Option<String>,
    /// Whether it leads or follows, unless it hides that.
    pub mode: Option<String>,
    /// Whether it knows the session of another member's client.
    pub shares_sessions: bool,
    /// The shortest ttl that it grants.
    pub shortest_ttl: Duration,
    /// The longest ttl that it grants.
    pub longest_ttl: Duration,
}

/// Judges what the members have reported, of which one has at least. `size` is the number of all members.
pub fn check(members: &[Member], size: &Result<usize, String>) -> Vec<Check> {
    let reports = reports(members);
    let mut checks: Vec<_> =
        members.iter().filter_map(|it| it.report.as_ref().err()).map(silent).collect();
    checks.push(quorum(&reports, members.len(), size));
    checks.extend(members.iter().filter_map(version));
    checks.push(ttl(&reports));
    checks
}

/// The ttl nearest to this one that all members grant.
pub fn nearest_ttl(members: &[Member], ttl: Duration) -> Duration {
    let (shortest, longest) = granted(&reports(members));
    ttl.min(longest).max(shortest)
}

fn reports(members: &[Member]) -> Vec<&MemberReport> {
    members.iter().filter_map(|it| it.report.as_ref().ok()).collect()
}

/// Checks that the members belong together, and that all are named. Those that answer have opened a
/// session, so that a majority is there.
fn quorum(reports: &[&MemberReport], named: usize, size: &Result<usize, String>) -> Check {
    if reports.iter().any(|report| !report.shares_sessions) {
        return Check::bad(
            Verdict::Unfit,
            QUORUM,
            "the URL names members of different ensembles: one does not know the other's sessions",
            "clients that reach different ensembles hold one lock at the same time",
            "name the members of one ensemble",
        );
    }
    match size {
        Ok(size) if *size > named => unnamed(named, *size),
        Ok(_) => {
            let modes = reports.iter().map(|report| report.mode.as_deref().unwrap_or("unknown"));
            let modes = modes.collect::<Vec<_>>().join(", ");
            let found = format!("members that answer: {} of {named} ({modes})", reports.len());
            Check::ok(QUORUM, found)
        }
        Err(error) => Check::bad(
            Verdict::Warning,
            QUORUM,
            format!("the list of all members could not be seen: {}", error),
            "a danger may be hidden here",
            "let the user read the node /zookeeper/config, or make sure that the URL names all \
                 members",
        ),
    }
}

fn version(member: &Member) -> Option<Check> {
    const NAME: &str = "version";
    let (address, report) = (&member.address, member.report.as_ref().ok()?);
    let seen = report.version.as_deref().and_then(|text| Some((text, parsed(text)?)));
    Some(match seen {
        Some((text, version)) if version < USABLE => Check::bad(
            Verdict::Unfit,
            NAME,
            format!("{address} is ZooKeeper {text}, which is older than {}.{}", USABLE.0, USABLE.1),
            UNUSABLE,
            "update ZooKeeper",
        ),
        Some((text, _)) => Check::ok(NAME, format!("{address} is ZooKeeper {text}")),
        None => Check::bad(
            Verdict::Warning,
            NAME,
            format!("the version of {address} could not be seen"),
            "a danger may be hidden here",
            "find out whether it is ZooKeeper 3.6 or newer, or add srvr to its setting \
                 4lw.commands.whitelist",
        ),
    })
}

fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The ttls that all members grant: the shortest and the longest.
fn granted(reports: &[&MemberReport]) -> (Duration, Duration) {
    let shortest = reports.iter().map(|report| report.shortest_ttl).max();
    let longest = reports.iter().map(|report| report.longest_ttl).min();
    (shortest.unwrap_or_default(), longest.unwrap_or(Duration::MAX))
}

fn ttl(reports: &[&MemberReport]) -> Check {
    let (shortest, longest) = granted(reports);
    let found = format!(
        "the members grant a ttl from {} to {}",
        humantime::format_duration(shortest),
        humantime::format_duration(longest)
    );
    if shortest > longest {
        return Check::bad(
            Verdict::Unfit,
            TTL,
            "no ttl is granted by all members",
            UNUSABLE,
            "set the same minSessionTimeout and maxSessionTimeout on all members",
        );
    }
    if !(shortest..=longest).contains(&DEFAULT_TTL) {
        return Check::bad(
            Verdict::Warning,
            TTL,
            found,
            "no token; but a command without --ttl asks for 30 s, and is rejected",
            "give --ttl, or change minSessionTimeout and maxSessionTimeout on all members",
        );
    }
    let first = (reports[0].shortest_ttl, reports[0].longest_ttl);
    if reports.iter().any(|report| (report.shortest_ttl, report.longest_ttl) != first) {
        return Check::bad(
            Verdict::Warning,
            TTL,
            format!("the members grant different ttls; all of them, {found}"),
            "no token; but another ttl is granted or rejected by chance",
            "set the same minSessionTimeout and maxSessionTimeout on all members",
        );
    }
    Check::ok(TTL, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(shortest_secs: u64, longest_secs: u64) -> MemberReport {
        MemberReport {
            version: Some("3.8.0".to_owned()),
            mode: Some("follower".to_owned()),
            shares_sessions: true,
            shortest_ttl: Duration::from_secs(shortest_secs),
            longest_ttl: Duration::from_secs(longest_secs),
        }
    }

    #[test]
    fn versions_are_rated_and_an_unknown_one_is_a_warning() {
        for (text, expected) in [
            (Some("3.5.10"), Verdict::Unfit),
            (Some("3.6.0"), Verdict::Ok),
            (Some("3.10.1"), Verdict::Ok),
            (Some("4.0.0"), Verdict::Ok),
            (Some("unknown"), Verdict::Warning),
            (None, Verdict::Warning),
        ] {
            let report = MemberReport { version: text.map(str::to_owned), ..report(4, 40) };
            let member = Member { address: "n1:2181".to_owned(), report: Ok(report) };
            let check = version(&member).unwrap();
            assert_eq!(check.verdict, expected, "{text:?}: {}", check.found);
        }
    }

    #[test]
    fn members_that_do_not_belong_together_or_are_not_named_are_found() {
        let ours = report(4, 40);
        let other = MemberReport { shares_sessions: false, ..ours.clone() };
        let unseen = || Err("no permission".to_owned());
        for (reports, named, size, expected) in [
            (vec![&ours, &ours, &ours], 3, Ok(3), Verdict::Ok),
            (vec![&ours, &ours], 3, Ok(3), Verdict::Ok),
            (vec![&ours, &ours], 2, Ok(3), Verdict::Warning),
            (vec![&ours], 1, unseen(), Verdict::Warning),
            (vec![&ours, &other, &ours], 3, Ok(3), Verdict::Unfit),
        ] {
            let check = quorum(&reports, named, &size);
            assert_eq!(check.verdict, expected, "{}", check.found);
        }
    }

    #[test]
    fn ttls_are_rated_by_what_all_members_grant() {
        for (limits, expected, test_secs) in [
            (vec![(4, 40)], Verdict::Ok, 10),
            (vec![(4, 40), (4, 40)], Verdict::Ok, 10),
            (vec![(4, 40), (4, 60)], Verdict::Warning, 10),
            (vec![(1, 6)], Verdict::Warning, 6),
            (vec![(40, 400)], Verdict::Warning, 40),
            (vec![(4, 40), (50, 60)], Verdict::Unfit, 50),
        ] {
            let member = |&(from, to): &(u64, u64)| Member {
                address: "n1:2181".to_owned(),
                report: Ok(report(from, to)),
            };
            let members: Vec<_> = limits.iter().map(member).collect();
            let check = ttl(&reports(&members));
            assert_eq!(check.verdict, expected, "{limits:?}: {}", check.found);
            let nearest = nearest_ttl(&members, Duration::from_secs(10));
            assert_eq!(nearest, Duration::from_secs(test_secs), "{limits:?}");
        }
    }
}
