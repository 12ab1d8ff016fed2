//! An etcd: its members, and all of them together.

use std::time::Duration;

use lock_client::{
    Locks, Terms, Ttl,
    backend::BackendError,
    etcd::{ClusterReport, Etcd, LeaseClock, MemberHealth, MemberReport},
};
use tokio::join;

use super::{
    finding::{Cure, Finding, Severity},
    locking,
    report::Report,
};
use crate::failure::{Failure, with_causes};

/// The first version with the JSON gateway that the locks use.
const USABLE: (u32, u32) = (3, 4);
/// The first versions whose deposed leaders revoke no lease.
const GOOD: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];
const QUORUM: &str = "quorum";
/// By how much the clock of leases may differ from ours.
const TOLERANCE: Duration = Duration::from_millis(500);
/// A common shortest ttl is 2 seconds.
const TTL_SECONDS: u64 = 10;

/// Asks all members that the URL names, and runs all checks.
pub(super) async fn examine(etcd: &Etcd, locks: &Locks) -> Result<Report, Failure> {
    let members = etcd.members().await;
    let reports: Vec<_> = members.iter().filter_map(|member| member.report.as_ref().ok()).collect();
    let [first, ..] = &reports[..] else {
        let errors = members.iter().filter_map(|member| member.report.as_ref().err());
        let errors: Vec<_> = errors.map(|error| with_causes(error)).collect();
        return Err(Failure::Unavailable(errors.join("; ")));
    };
    let cluster = etcd.cluster().await;
    let mut findings: Vec<_> = members.iter().filter_map(silent).collect();
    findings.push(quorum(&reports, members.len(), cluster.as_ref().ok()));
    findings.extend(members.iter().filter_map(version));
    findings.push(alarms(&cluster));
    let (clock, locking) = join!(etcd.lease_clock(), locking(locks));
    findings.extend([self::clock(&clock), locking]);
    Ok(Report::from_findings(format!("etcd {}", first.version), None, findings))
}

/// Reports a member that does not answer.
fn silent(member: &MemberHealth) -> Option<Finding> {
    let error = member.report.as_ref().err()?;
    Some(Finding::bad(
        Severity::Warning,
        QUORUM,
        with_causes(error),
        "no token; but no lock can be acquired when a majority of the members is down",
        Cure::advice("start it again, or replace it and change the URL"),
    ))
}

/// Checks that the members belong together, and that all are named. Those that answer know a leader,
/// so that a majority is there.
fn quorum(reports: &[&MemberReport], named: usize, cluster: Option<&ClusterReport>) -> Finding {
    if reports.iter().any(|report| report.cluster_id != reports[0].cluster_id) {
        return Finding::bad(
            Severity::TokenLoss,
            QUORUM,
            "the URL names members of different clusters",
            "clients that reach different clusters hold one lock at the same time",
            Cure::advice("name the members of one cluster"),
        );
    }
    match cluster.map(|cluster| cluster.members) {
        Some(members) if members > named => Finding::bad(
            Severity::Warning,
            QUORUM,
            format!("the URL names {named} of {members} members"),
            "no token; but clients find no other member when the named ones are down",
            Cure::advice("name all members, with commas between them"),
        ),
        _ => Finding::ok(QUORUM, format!("members that answer: {} of {named}", reports.len())),
    }
}

fn version(member: &MemberHealth) -> Option<Finding> {
    const CHECK: &str = "version";
    let (address, text) = (&member.address, &member.report.as_ref().ok()?.version);
    let found = format!("{address} is etcd {text}");
    Some(match parsed(text) {
        Some((major, minor, _)) if (major, minor) < USABLE => Finding::bad(
            Severity::Unusable,
            CHECK,
            format!("{found}, which is older than {}.{}", USABLE.0, USABLE.1),
            locking::UNUSABLE,
            Cure::advice("update etcd"),
        ),
        Some(version) if is_good(version) => Finding::ok(CHECK, found),
        Some(_) => Finding::bad(
            Severity::Warning,
            CHECK,
            found,
            "no token; but a leader that was deposed, and does not know it yet, revokes leases that \
             live: then a holder loses its lock too early",
            Cure::advice("update etcd to 3.4.31, 3.5.13 or newer"),
        ),
        None => Finding::bad(
            Severity::Warning,
            CHECK,
            format!("the version in {text:?} could not be seen"),
            "a danger may be hidden here",
            Cure::advice("find out whether it is etcd 3.4.31, 3.5.13 or newer"),
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
fn alarms(cluster: &Result<ClusterReport, BackendError>) -> Finding {
    const CHECK: &str = "alarms";
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(error) => {
            return Finding::bad(
                Severity::Warning,
                CHECK,
                format!("the alarms could not be seen: {}", with_causes(error)),
                "a danger may be hidden here",
                Cure::advice("run `etcdctl alarm list` as a user who may"),
            );
        }
    };
    let (severity, endangers, advice) = match &cluster.alarms[..] {
        [] => return Finding::ok(CHECK, "no alarm is on"),
        alarms if alarms.iter().any(|alarm| alarm == "CORRUPT") => (
            Severity::TokenLoss,
            "members have different data: two of them may grant one lock",
            "stop the members with wrong data, and replace them",
        ),
        _ => (
            Severity::Unusable,
            "no lock can be acquired, because etcd accepts no writes",
            "compact, defragment or raise the quota of the database; then `etcdctl alarm disarm`",
        ),
    };
    let found = format!("alarms: {}", cluster.alarms.join(", "));
    Finding::bad(severity, CHECK, found, endangers, Cure::advice(advice))
}

/// Checks that the clock that ends leases neither stands still nor goes twice as fast as this machine's. A
/// finer difference is not seen in this short time, because etcd answers in whole seconds.
fn clock(clock: &Result<LeaseClock, BackendError>) -> Finding {
    const CHECK: &str = "clock";
    let LeaseClock { granted, left, elapsed } = match clock {
        Ok(clock) => clock,
        Err(error) => {
            return Finding::bad(
                Severity::Warning,
                CHECK,
                format!("the clock of leases could not be seen: {}", with_causes(error)),
                "a danger may be hidden here",
                Cure::advice("resolve the error, and the other findings"),
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
        return Finding::ok(CHECK, found);
    }
    Finding::bad(
        Severity::Warning,
        CHECK,
        found,
        if is_fast {
            "no token; but leases end too early: a holder that lives loses its lock"
        } else {
            "no token; but leases end too late: a holder that crashed keeps its lock"
        },
        Cure::advice(
            "repeat the check, because an election sets the full time of all leases; then find out \
             whether this machine's clock is wrong, or that of etcd's leader",
        ),
    )
}

/// Acquires, renews and releases a lock. Nothing of it is left.
async fn locking(locks: &Locks) -> Finding {
    let ttl = Ttl::from_secs(TTL_SECONDS).expect("it is a valid ttl");
    let terms = Terms::new(ttl).no_wait().fair();
    match locking::use_lock(locks, &locking::unused_name(), terms).await {
        Ok(()) => Finding::ok(locking::CHECK, "acquired, renewed and released a lock"),
        Err(problem) => Finding::bad(
            Severity::Unusable,
            locking::CHECK,
            problem,
            locking::UNUSABLE,
            Cure::advice(
                "resolve the error, and the other findings; a user needs the permission to read \
                 and write the prefix fenced/",
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(version: &str) -> MemberHealth {
        let report = MemberReport { cluster_id: 1, version: version.to_owned() };
        MemberHealth { address: "n1:2379".to_owned(), report: Ok(report) }
    }

    #[test]
    fn versions_whose_deposed_leaders_revoke_leases_are_warned_of() {
        for (text, expected) in [
            ("3.3.27", Severity::Unusable),
            ("3.4.23", Severity::Warning),
            ("3.4.31", Severity::Ok),
            ("3.5.0", Severity::Warning),
            ("3.5.12", Severity::Warning),
            ("3.5.13", Severity::Ok),
            ("3.6.0-rc.1", Severity::Ok),
            ("4.0.0", Severity::Ok),
            ("unknown", Severity::Warning),
        ] {
            let finding = version(&member(text)).unwrap();
            assert_eq!(finding.severity, expected, "{text}: {}", finding.found);
        }
    }

    #[test]
    fn members_that_do_not_belong_together_are_found() {
        let report = |cluster_id| MemberReport { cluster_id, version: "3.5.13".to_owned() };
        let (ours, other) = (report(1), report(2));
        let cluster = ClusterReport { members: 3, alarms: Vec::new() };
        let severity =
            |reports: &[&MemberReport], named| quorum(reports, named, Some(&cluster)).severity;
        assert_eq!(severity(&[&ours, &ours, &ours], 3), Severity::Ok);
        assert_eq!(severity(&[&ours, &ours], 2), Severity::Warning, "one is not named");
        assert_eq!(severity(&[&ours, &other, &ours], 3), Severity::TokenLoss);
    }

    #[test]
    fn alarms_are_reported() {
        let severity = |names: &[&str]| {
            let alarms = names.iter().map(|&name| name.to_owned()).collect();
            super::alarms(&Ok(ClusterReport { members: 1, alarms })).severity
        };
        assert_eq!(severity(&[]), Severity::Ok);
        assert_eq!(severity(&["NOSPACE"]), Severity::Unusable);
        assert_eq!(severity(&["NOSPACE", "CORRUPT"]), Severity::TokenLoss);
    }

    #[test]
    fn clock_of_leases_that_goes_wrong_is_reported() {
        let severity = |left, [at_least, at_most]: [u64; 2]| {
            let elapsed = Duration::from_millis(at_least)..=Duration::from_millis(at_most);
            let [granted, left] = [10, left].map(Duration::from_secs);
            super::clock(&Ok(LeaseClock { granted, left, elapsed })).severity
        };
        for left in [8, 9] {
            assert_eq!(severity(left, [1_000, 1_010]), Severity::Ok, "{left}");
        }
        assert_eq!(severity(10, [1_000, 1_010]), Severity::Warning, "it stands still");
        assert_eq!(severity(7, [1_000, 1_010]), Severity::Warning, "it goes twice as fast");
        assert_eq!(severity(0, [1_000, 1_010]), Severity::Warning, "it has jumped");
        // The leader may have looked at its clock at any moment of a slow round trip.
        for left in [5, 7, 8, 9] {
            assert_eq!(severity(left, [1_000, 4_000]), Severity::Ok, "{left}");
        }
        assert_eq!(severity(3, [1_000, 4_000]), Severity::Warning);
        let rejected = BackendError::Rejected("no permission".into());
        assert_eq!(super::clock(&Err(rejected)).severity, Severity::Warning, "it was not seen");
    }
}
