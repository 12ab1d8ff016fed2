//! An etcd: its members, and all of them together. The client of the locks asks; this judges.

use std::{ops::RangeInclusive, time::Duration};

use crate::{
    check::{Check, Verdict},
    members::{QUORUM, silent, unnamed},
};

/// The first version with the JSON gateway that the locks use.
const USABLE: (u32, u32) = (3, 4);
/// The first versions whose deposed leaders revoke no lease.
const GOOD: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];
/// By how much the clock of leases may differ from ours.
const TOLERANCE: Duration = Duration::from_millis(500);

/// A member that the URL names.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its address.
    pub address: String,
    /// What it reports, or why it does not answer. A member that knows no leader reports nothing.
    pub report: Result<MemberReport, String>,
}

/// What a member reports of itself.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// The cluster that it belongs to.
    pub cluster_id: u64,
    /// Its version.
    pub version: String,
}

/// What a cluster reports of itself.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// How many members it has.
    pub members: usize,
    /// The alarms that are on.
    pub alarms: Vec<String>,
}

/// A lease that was left to expire for a while.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    /// The time for which it was granted.
    pub granted: Duration,
    /// The time that etcd says is left, in whole seconds.
    pub left: Duration,
    /// The time that has passed here, at least and at most.
    pub elapsed: RangeInclusive<Duration>,
}

/// Judges what the members have reported. At least one has.
pub fn check(
    members: &[Member],
    cluster: &Result<Cluster, String>,
    clock: &Result<LeaseClock, String>,
) -> Vec<Check> {
    let reports: Vec<_> = members.iter().filter_map(|it| it.report.as_ref().ok()).collect();
    let mut checks: Vec<_> =
        members.iter().filter_map(|it| it.report.as_ref().err()).map(silent).collect();
    checks.push(quorum(&reports, members.len(), cluster.as_ref().ok()));
    checks.extend(members.iter().filter_map(version));
    checks.push(alarms(cluster));
    checks.push(self::clock(clock));
    checks
}

/// Checks that the members belong together, and that all are named. Those that answer know a leader, so that a
/// majority is there.
fn quorum(reports: &[&MemberReport], named: usize, cluster: Option<&Cluster>) -> Check {
    if reports.iter().any(|report| report.cluster_id != reports[0].cluster_id) {
        return Check::bad(
            Verdict::Unfit,
            QUORUM,
            "the URL names members of different clusters",
            "clients that reach different clusters hold one lock at the same time",
            "name the members of one cluster",
        );
    }
    match cluster.map(|cluster| cluster.members) {
        Some(members) if members > named => unnamed(named, members),
        _ => Check::ok(QUORUM, format!("members that answer: {} of {named}", reports.len())),
    }
}

fn version(member: &Member) -> Option<Check> {
    const NAME: &str = "version";
    let (address, text) = (&member.address, &member.report.as_ref().ok()?.version);
    let found = format!("{address} is etcd {text}");
    Some(match parsed(text) {
        Some((major, minor, _)) if (major, minor) < USABLE => Check::bad(
            Verdict::Unfit,
            NAME,
            format!("{found}, which is older than {}.{}", USABLE.0, USABLE.1),
            "it has no JSON gateway, which locks use",
            "update etcd",
        ),
        Some(version) if is_good(version) => Check::ok(NAME, found),
        Some(_) => Check::bad(
            Verdict::Warning,
            NAME,
            found,
            "no token; but a leader that was deposed, and does not know it yet, revokes leases that live: then \
             a holder loses its lock too early",
            "update etcd to 3.4.31, 3.5.13 or newer",
        ),
        None => Check::bad(
            Verdict::Warning,
            NAME,
            format!("the version in {text:?} could not be seen"),
            "a danger may be hidden here",
            "find out whether it is etcd 3.4.31, 3.5.13 or newer",
        ),
    })
}

fn parsed(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split(['.', '-', '+']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

fn is_good(version: (u32, u32, u32)) -> bool {
    let (major, minor, _) = version;
    let same_minor = GOOD.into_iter().find(|good| (good.0, good.1) == (major, minor));
    same_minor.is_none_or(|good| version >= good)
}

/// Checks whether an alarm is on.
fn alarms(cluster: &Result<Cluster, String>) -> Check {
    const NAME: &str = "alarms";
    let alarms = match cluster {
        Ok(cluster) => &cluster.alarms[..],
        Err(error) => {
            return Check::bad(
                Verdict::Warning,
                NAME,
                format!("the alarms could not be seen: {error}"),
                "a danger may be hidden here",
                "run `etcdctl alarm list` as a user who may",
            );
        }
    };
    let found = format!("alarms: {}", alarms.join(", "));
    let (why, cure) = match alarms {
        [] => return Check::ok(NAME, "no alarm is on"),
        alarms if alarms.iter().any(|alarm| alarm == "CORRUPT") => (
            "members have different data: two of them may grant one lock",
            "stop the members with wrong data, and replace them",
        ),
        _ => (
            "no lock can be acquired, because etcd accepts no writes",
            "compact, defragment or raise the quota of the database; then `etcdctl alarm disarm`",
        ),
    };
    Check::bad(Verdict::Unfit, NAME, found, why, cure)
}

/// Checks that the clock that ends leases neither stands still nor goes twice as fast as this machine's. A finer
/// difference is not seen in this short time, because etcd answers in whole seconds.
fn clock(clock: &Result<LeaseClock, String>) -> Check {
    const NAME: &str = "clock";
    let LeaseClock { granted, left, elapsed } = match clock {
        Ok(clock) => clock,
        Err(error) => {
            return Check::bad(
                Verdict::Warning,
                NAME,
                format!("the clock of leases could not be seen: {error}"),
                "a danger may be hidden here",
                "resolve the error, and the other checks",
            );
        }
    };
    let found = format!(
        "a lease of {} s has {} s left after {:.3} s",
        granted.as_secs(),
        left.as_secs(),
        elapsed.start().as_secs_f64()
    );
    // The rest of the last second is not shown.
    let at_most = granted.saturating_sub(*left);
    let at_least = at_most.saturating_sub(Duration::from_secs(1));
    let is_fast = at_least > *elapsed.end() + TOLERANCE;
    if !is_fast && at_most + TOLERANCE >= *elapsed.start() {
        return Check::ok(NAME, found);
    }
    Check::bad(
        Verdict::Warning,
        NAME,
        found,
        if is_fast {
            "no token; but leases end too early: a holder that lives loses its lock"
        } else {
            "no token; but leases end too late: a holder that crashed keeps its lock"
        },
        "repeat the check, because an election sets the full time of all leases; then find out whether this \
         machine's clock is wrong, or that of etcd's leader",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(version: &str) -> Member {
        let report = MemberReport { cluster_id: 1, version: version.to_owned() };
        Member { address: "n1:2379".to_owned(), report: Ok(report) }
    }

    #[test]
    fn versions_whose_deposed_leaders_revoke_leases_are_warned_of() {
        for (text, expected) in [
            ("3.3.27", Verdict::Unfit),
            ("3.4.23", Verdict::Warning),
            ("3.4.31", Verdict::Ok),
            ("3.5.0", Verdict::Warning),
            ("3.5.12", Verdict::Warning),
            ("3.5.13", Verdict::Ok),
            ("3.6.0-rc.1", Verdict::Ok),
            ("4.0.0", Verdict::Ok),
            ("unknown", Verdict::Warning),
        ] {
            let check = version(&member(text)).unwrap();
            assert_eq!(check.verdict, expected, "{text}: {}", check.found);
        }
    }

    #[test]
    fn members_that_do_not_belong_together_are_found() {
        let report = |cluster_id| MemberReport { cluster_id, version: "3.5.13".to_owned() };
        let (ours, other) = (report(1), report(2));
        let cluster = Cluster { members: 3, alarms: Vec::new() };
        let verdict =
            |reports: &[&MemberReport], named| quorum(reports, named, Some(&cluster)).verdict;
        assert_eq!(verdict(&[&ours, &ours, &ours], 3), Verdict::Ok);
        assert_eq!(verdict(&[&ours, &ours], 2), Verdict::Warning, "one is not named");
        assert_eq!(verdict(&[&ours, &other, &ours], 3), Verdict::Unfit);
    }

    #[test]
    fn alarms_are_reported() {
        let verdict = |names: &[&str]| {
            let alarms = names.iter().map(|&name| name.to_owned()).collect();
            super::alarms(&Ok(Cluster { members: 1, alarms })).verdict
        };
        assert_eq!(verdict(&[]), Verdict::Ok);
        assert_eq!(verdict(&["NOSPACE"]), Verdict::Unfit);
        assert_eq!(verdict(&["NOSPACE", "CORRUPT"]), Verdict::Unfit);
    }

    #[test]
    fn clock_of_leases_that_goes_wrong_is_reported() {
        let verdict = |left, [at_least, at_most]: [u64; 2]| {
            let elapsed = Duration::from_millis(at_least)..=Duration::from_millis(at_most);
            let [granted, left] = [10, left].map(Duration::from_secs);
            super::clock(&Ok(LeaseClock { granted, left, elapsed })).verdict
        };
        for left in [8, 9] {
            assert_eq!(verdict(left, [1_000, 1_010]), Verdict::Ok, "{left}");
        }
        assert_eq!(verdict(10, [1_000, 1_010]), Verdict::Warning, "it stands still");
        assert_eq!(verdict(7, [1_000, 1_010]), Verdict::Warning, "it goes twice as fast");
        assert_eq!(verdict(0, [1_000, 1_010]), Verdict::Warning, "it has jumped");
        // The leader may have looked at its clock at any moment of a slow round trip.
        for left in [5, 7, 8, 9] {
            assert_eq!(verdict(left, [1_000, 4_000]), Verdict::Ok, "{left}");
        }
        assert_eq!(verdict(3, [1_000, 4_000]), Verdict::Warning);
        let rejected = "no permission".to_owned();
        assert_eq!(super::clock(&Err(rejected)).verdict, Verdict::Warning, "it was not seen");
    }
}
