//! An etcd: its members, and all of them together. The client of the locks asks; this judges.

use std::{ops::RangeInclusive, time::Duration};

pub use crate::members::Member;
use crate::{
    check::{Check, Verdict},
    members::{quorum, reports},
    version,
};

/// The first version with the JSON gateway that the locks use.
const USABLE: [u32; 2] = [3, 4];
/// The first versions whose deposed leaders revoke no lease.
const GOOD: [[u32; 3]; 2] = [[3, 4, 31], [3, 5, 13]];
/// By how much the clock of leases may differ from ours.
const TOLERANCE: Duration = Duration::from_millis(500);

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
    members: &[Member<MemberReport>],
    cluster: &Result<Cluster, String>,
    lease: &Result<LeaseClock, String>,
) -> Vec<Check> {
    let mut ids = reports(members).map(|report| report.cluster_id);
    let first = ids.next();
    let belong_together = ids.all(|id| Some(id) == first);
    let number = cluster.as_ref().map(|cluster| cluster.members).map_err(Clone::clone);
    let mut checks: Vec<_> = quorum(members, belong_together, &number).collect();
    checks.extend(members.iter().filter_map(version));
    checks.push(match cluster {
        Ok(cluster) => alarms(&cluster.alarms),
        Err(error) => unseen("alarms", error, "run `etcdctl alarm list` as a user who may"),
    });
    checks.push(match lease {
        Ok(lease) => clock(lease),
        Err(error) => unseen("clock", error, "resolve the error, and the other checks"),
    });
    checks
}

fn unseen(name: &'static str, error: &str, cure: &'static str) -> Check {
    let check = Check::unseen(name, format!("it could not be seen: {error}"), cure);
    check.lowered("a danger may be hidden here")
}

fn version(member: &Member<MemberReport>) -> Option<Check> {
    const NAME: &str = "version";
    let text = &member.report.as_ref().ok()?.version;
    let found = format!("{} is etcd {text}", member.address);
    let Some(version) = version::numbers(text).filter(|version| version.len() >= 3) else {
        let cure = "find out whether it is etcd 3.4.31, 3.5.13 or newer";
        return Some(Check::unseen(NAME, found, cure).lowered("a danger may be hidden here"));
    };
    let same_minor = GOOD.into_iter().find(|good| good[..2] == version[..2]);
    let check = Check::ok(NAME, found)
        .unless(
            version[..] >= USABLE[..],
            Verdict::Unfit,
            "it has no JSON gateway, which the locks use",
            "update etcd to 3.4 or newer",
        )
        .unless(
            same_minor.is_none_or(|good| version[..3] >= good[..]),
            Verdict::Warning,
            "no token; but a leader that was deposed, and does not know it yet, revokes leases that live: then a holder \
             loses its lock too early",
            "update etcd to 3.4.31, 3.5.13 or newer",
        );
    Some(check)
}

fn alarms(alarms: &[String]) -> Check {
    Check::ok("alarms", format!("alarms that are on: {alarms:?}"))
        .unless(
            alarms.iter().all(|alarm| alarm != "CORRUPT"),
            Verdict::Unfit,
            "members have different data: two of them may grant one lock",
            "stop the members with wrong data, and replace them",
        )
        .unless(
            alarms.is_empty(),
            Verdict::Unfit,
            "no lock can be acquired, because etcd accepts no writes",
            "compact, defragment or raise the quota of the database; then `etcdctl alarm disarm`",
        )
}

/// Checks that the clock that ends leases neither stands still nor goes twice as fast as this machine's. A finer
/// difference is not seen in this short time, because etcd answers in whole seconds.
fn clock(LeaseClock { granted, left, elapsed }: &LeaseClock) -> Check {
    let [seconds, seconds_left] = [granted.as_secs(), left.as_secs()];
    let passed = elapsed.start().as_secs_f64();
    let found = format!("a lease of {seconds} s has {seconds_left} s left after {passed:.3} s");
    // The rest of the last second is not shown.
    let at_most = granted.saturating_sub(*left);
    let at_least = at_most.saturating_sub(Duration::from_secs(1));
    let cure = "repeat the check, because an election sets the full time of all leases; then find out whether this \
                machine's clock is wrong, or that of etcd's leader";
    Check::ok("clock", found)
        .unless(
            at_least <= *elapsed.end() + TOLERANCE,
            Verdict::Warning,
            "no token; but leases end too early: a holder that lives loses its lock",
            cure,
        )
        .unless(
            at_most + TOLERANCE >= *elapsed.start(),
            Verdict::Warning,
            "no token; but leases end too late: a holder that crashed keeps its lock",
            cure,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(cluster_id: u64, version: &str) -> Member<MemberReport> {
        let report = MemberReport { cluster_id, version: version.to_owned() };
        Member { address: "n1:2379".to_owned(), report: Ok(report) }
    }

    fn verdict(name: &str, members: &[Member<MemberReport>], alarms: &[&str]) -> Verdict {
        let alarms = alarms.iter().map(|&alarm| alarm.to_owned()).collect();
        let lease = Err("no permission".to_owned());
        let checks = check(members, &Ok(Cluster { members: 3, alarms }), &lease);
        checks.iter().filter(|check| check.name == name).map(|check| check.verdict).max().unwrap()
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
            assert_eq!(verdict("version", &[member(1, text)], &[]), expected, "{text}");
        }
    }

    #[test]
    fn members_that_do_not_belong_together_and_alarms_are_found() {
        let members = |ids: &[u64]| ids.iter().map(|&id| member(id, "3.5.13")).collect::<Vec<_>>();
        assert_eq!(verdict("quorum", &members(&[1, 1, 1]), &[]), Verdict::Ok);
        assert_eq!(verdict("quorum", &members(&[1, 1]), &[]), Verdict::Warning, "one is not named");
        assert_eq!(verdict("quorum", &members(&[1, 2, 1]), &[]), Verdict::Unfit);
        for (alarms, expected) in [
            (&[][..], Verdict::Ok),
            (&["NOSPACE"], Verdict::Unfit),
            (&["NOSPACE", "CORRUPT"], Verdict::Unfit),
        ] {
            assert_eq!(verdict("alarms", &members(&[1, 1, 1]), alarms), expected, "{alarms:?}");
        }
        assert_eq!(verdict("clock", &members(&[1]), &[]), Verdict::Warning, "it was not seen");
    }

    #[test]
    fn number_of_members_that_was_not_seen_is_no_number() {
        let unseen = Err("no permission".to_owned());
        let checks = check(&[member(1, "3.5.13")], &unseen, &Err("no permission".to_owned()));
        let quorum = checks.iter().find(|check| check.name == "quorum").unwrap();
        assert_eq!(quorum.verdict, Verdict::Warning, "{quorum:?}");
        assert!(quorum.found.contains("could not be seen"), "{quorum:?}");
    }

    #[test]
    fn clock_of_leases_that_goes_wrong_is_reported() {
        let verdict = |left, [at_least, at_most]: [u64; 2]| {
            let elapsed = Duration::from_millis(at_least)..=Duration::from_millis(at_most);
            let [granted, left] = [10, left].map(Duration::from_secs);
            clock(&LeaseClock { granted, left, elapsed }).verdict
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
    }
}
