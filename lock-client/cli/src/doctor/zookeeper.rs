//! A ZooKeeper: its members, and all of them together.

use std::time::Duration;

use lock_client::{
    Locks, Terms, Ttl,
    backend::BackendError,
    zookeeper::{Login, MemberHealth, MemberReport, ZooKeeper},
};

use super::{
    finding::{Cure, Finding, Severity},
    locking,
    report::Report,
};
use crate::failure::{Failure, with_causes};

/// The first version with all requests that the locks use.
const USABLE: (u32, u32) = (3, 6);
const QUORUM: &str = "quorum";
const TTL: &str = "ttl";
/// The ttl of `run`, if none is given.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The ttl of the test lock, if all members grant it.
const TEST_TTL: Duration = Duration::from_secs(10);

/// Asks all members that the URL names, and runs all checks.
pub(super) async fn examine(zookeeper: &ZooKeeper, locks: &Locks) -> Result<Report, Failure> {
    let members = zookeeper.members().await;
    let reports: Vec<_> = members.iter().filter_map(|member| member.report.as_ref().ok()).collect();
    let [first, ..] = &reports[..] else {
        let errors = members.iter().filter_map(|member| member.report.as_ref().err());
        let errors: Vec<_> = errors.map(|error| with_causes(error)).collect();
        return Err(Failure::Unavailable(errors.join("; ")));
    };
    let server = match &first.version {
        Some(version) => format!("ZooKeeper {version}"),
        None => "ZooKeeper".to_owned(),
    };
    let size = zookeeper.ensemble_size().await;
    let mut findings: Vec<_> = members.iter().filter_map(silent).collect();
    findings.push(quorum(&reports, members.len(), &size));
    findings.extend(members.iter().filter_map(version));
    findings.push(ttl(&reports));
    // The test lock makes the nodes above it.
    findings.extend(login(zookeeper.login().await));
    findings.push(locking(locks, test_ttl(&reports)).await);
    Ok(Report::from_findings(server, None, findings))
}

/// Reports a member that does not answer, or has no quorum.
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

/// Checks that the members belong together, and that all are named. Those that answer have opened a
/// session, so that a majority is there.
fn quorum(reports: &[&MemberReport], named: usize, size: &Result<usize, BackendError>) -> Finding {
    if reports.iter().any(|report| !report.shares_sessions) {
        return Finding::bad(
            Severity::TokenLoss,
            QUORUM,
            "the URL names members of different ensembles: one does not know the other's sessions",
            "clients that reach different ensembles hold one lock at the same time",
            Cure::advice("name the members of one ensemble"),
        );
    }
    match size {
        Ok(size) if *size > named => Finding::bad(
            Severity::Warning,
            QUORUM,
            format!("the URL names {named} of {size} members"),
            "no token; but clients find no other member when the named ones are down",
            Cure::advice("name all members, with commas between them"),
        ),
        Ok(_) => {
            let modes = reports.iter().map(|report| report.mode.as_deref().unwrap_or("unknown"));
            let modes = modes.collect::<Vec<_>>().join(", ");
            let found = format!("members that answer: {} of {named} ({modes})", reports.len());
            Finding::ok(QUORUM, found)
        }
        Err(error) => Finding::bad(
            Severity::Warning,
            QUORUM,
            format!("the list of all members could not be seen: {}", with_causes(error)),
            "a danger may be hidden here",
            Cure::advice(
                "let the user read the node /zookeeper/config, or make sure that the URL names all \
                 members",
            ),
        ),
    }
}

fn version(member: &MemberHealth) -> Option<Finding> {
    const CHECK: &str = "version";
    let (address, report) = (&member.address, member.report.as_ref().ok()?);
    let seen = report.version.as_deref().and_then(|text| Some((text, parsed(text)?)));
    Some(match seen {
        Some((text, version)) if version < USABLE => Finding::bad(
            Severity::Unusable,
            CHECK,
            format!("{address} is ZooKeeper {text}, which is older than {}.{}", USABLE.0, USABLE.1),
            locking::UNUSABLE,
            Cure::advice("update ZooKeeper"),
        ),
        Some((text, _)) => Finding::ok(CHECK, format!("{address} is ZooKeeper {text}")),
        None => Finding::bad(
            Severity::Warning,
            CHECK,
            format!("the version of {address} could not be seen"),
            "a danger may be hidden here",
            Cure::advice(
                "find out whether it is ZooKeeper 3.6 or newer, or add srvr to its setting \
                 4lw.commands.whitelist",
            ),
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

fn ttl(reports: &[&MemberReport]) -> Finding {
    let (shortest, longest) = granted(reports);
    let found = format!(
        "the members grant a ttl from {} to {}",
        humantime::format_duration(shortest),
        humantime::format_duration(longest)
    );
    if shortest > longest {
        return Finding::bad(
            Severity::Unusable,
            TTL,
            "no ttl is granted by all members",
            locking::UNUSABLE,
            Cure::advice("set the same minSessionTimeout and maxSessionTimeout on all members"),
        );
    }
    if !(shortest..=longest).contains(&DEFAULT_TTL) {
        return Finding::bad(
            Severity::Warning,
            TTL,
            found,
            "no token; but a command without --ttl asks for 30 s, and is rejected",
            Cure::advice(
                "give --ttl, or change minSessionTimeout and maxSessionTimeout on all members",
            ),
        );
    }
    let first = (reports[0].shortest_ttl, reports[0].longest_ttl);
    if reports.iter().any(|report| (report.shortest_ttl, report.longest_ttl) != first) {
        return Finding::bad(
            Severity::Warning,
            TTL,
            format!("the members grant different ttls; all of them, {found}"),
            "no token; but another ttl is granted or rejected by chance",
            Cure::advice("set the same minSessionTimeout and maxSessionTimeout on all members"),
        );
    }
    Finding::ok(TTL, found)
}

/// The ttl of the test lock.
fn test_ttl(reports: &[&MemberReport]) -> Duration {
    let (shortest, longest) = granted(reports);
    TEST_TTL.min(longest).max(shortest)
}

/// Rates what the nodes of the locks show about the user and the password.
fn login(seen: Result<Login, BackendError>) -> Option<Finding> {
    const CHECK: &str = "login";
    let warning = |found: &str, endangers, advice: &str| {
        Some(Finding::bad(Severity::Warning, CHECK, found, endangers, Cure::advice(advice)))
    };
    match seen {
        Ok(Login::Anonymous) => None,
        Ok(Login::Confirmed) => Some(Finding::ok(CHECK, "the nodes of the locks are this user's")),
        Ok(Login::Untested) => warning(
            "there was no node of a lock yet, so nothing shows whether the password is right: \
             ZooKeeper takes any",
            "no token; but only this user with this password may use the nodes that the test lock \
             has left",
            "if the password is wrong, delete the node fenced below the root with it (deleteall)",
        ),
        Ok(Login::Open) => warning(
            "everybody may make locks here, so nothing shows whether the password is right: \
             ZooKeeper takes any",
            "no token; but a client with a wrong password makes locks that the others can't use",
            "make sure of the password, or let only this user use the node fenced and the nodes \
             queues and offsets below it (setAcl)",
        ),
        Ok(Login::Rejected { node, source }) => Some(Finding::bad(
            Severity::Unusable,
            CHECK,
            format!("the node {node} can't be used: {}", with_causes(&source)),
            locking::UNUSABLE,
            Cure::advice(
                "correct the user or the password in the URL, or give the node to this user (setAcl)",
            ),
        )),
        Err(error) => warning(
            &format!("the nodes of the locks could not be seen: {}", with_causes(&error)),
            "a danger may be hidden here",
            "resolve the error",
        ),
    }
}

/// Acquires, renews and releases a lock. Only the nodes above those of all locks are left.
async fn locking(locks: &Locks, ttl: Duration) -> Finding {
    let used = match Ttl::new(ttl) {
        Ok(ttl) => {
            let terms = Terms::new(ttl).no_wait().fair();
            locking::use_lock(locks, &locking::unused_name(), terms).await
        }
        Err(error) => Err(with_causes(&error)),
    };
    match used {
        Ok(()) => Finding::ok(locking::CHECK, "acquired, renewed and released a lock"),
        Err(problem) => Finding::bad(
            Severity::Unusable,
            locking::CHECK,
            problem,
            locking::UNUSABLE,
            Cure::advice(
                "resolve the error, and the other findings; a root in the URL must exist, and nodes \
                 that belong to a user need that user in the URL",
            ),
        ),
    }
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
            (Some("3.5.10"), Severity::Unusable),
            (Some("3.6.0"), Severity::Ok),
            (Some("3.10.1"), Severity::Ok),
            (Some("4.0.0"), Severity::Ok),
            (Some("unknown"), Severity::Warning),
            (None, Severity::Warning),
        ] {
            let report = MemberReport { version: text.map(str::to_owned), ..report(4, 40) };
            let member = MemberHealth { address: "n1:2181".to_owned(), report: Ok(report) };
            let finding = version(&member).unwrap();
            assert_eq!(finding.severity, expected, "{text:?}: {}", finding.found);
        }
    }

    #[test]
    fn members_that_do_not_belong_together_or_are_not_named_are_found() {
        let ours = report(4, 40);
        let other = MemberReport { shares_sessions: false, ..ours.clone() };
        let unseen = || Err(BackendError::Rejected("no permission".into()));
        for (reports, named, size, expected) in [
            (vec![&ours, &ours, &ours], 3, Ok(3), Severity::Ok),
            (vec![&ours, &ours], 3, Ok(3), Severity::Ok),
            (vec![&ours, &ours], 2, Ok(3), Severity::Warning),
            (vec![&ours], 1, unseen(), Severity::Warning),
            (vec![&ours, &other, &ours], 3, Ok(3), Severity::TokenLoss),
        ] {
            let finding = quorum(&reports, named, &size);
            assert_eq!(finding.severity, expected, "{}", finding.found);
        }
    }

    #[test]
    fn ttls_are_rated_by_what_all_members_grant() {
        for (limits, expected, test_secs) in [
            (vec![(4, 40)], Severity::Ok, 10),
            (vec![(4, 40), (4, 40)], Severity::Ok, 10),
            (vec![(4, 40), (4, 60)], Severity::Warning, 10),
            (vec![(1, 6)], Severity::Warning, 6),
            (vec![(40, 400)], Severity::Warning, 40),
            (vec![(4, 40), (50, 60)], Severity::Unusable, 50),
        ] {
            let reports: Vec<_> = limits.iter().map(|&(from, to)| report(from, to)).collect();
            let reports: Vec<_> = reports.iter().collect();
            let finding = ttl(&reports);
            assert_eq!(finding.severity, expected, "{limits:?}: {}", finding.found);
            assert_eq!(test_ttl(&reports), Duration::from_secs(test_secs), "{limits:?}");
        }
    }
}
