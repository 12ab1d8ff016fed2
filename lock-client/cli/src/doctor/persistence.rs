//! What a crash or a power loss leaves of the counters.

use super::{
    facts::Facts,
    finding::{Cure, Finding, Severity},
};
use lock_client::redlock::operator::{State, View};

const CHECK: &str = "persistence";

/// Looks at whether each grant is on disk before it is answered.
pub(super) fn persistence(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![kept(facts)];
    findings.extend(loading(facts));
    findings.extend(failed_writes(facts));
    findings
}

/// The same for a node of a cluster (Redlock), which has no vote after a restart that may have lost
/// something.
pub(super) fn of_a_node(facts: &Facts, view: &View) -> Vec<Finding> {
    let mut findings = persistence(facts);
    for finding in &mut findings {
        if matches!(finding.severity, Severity::TokenLoss | Severity::Unseen) {
            finding.severity = Severity::Warning;
            finding.endangers = Some(
                "no token: but after each restart the node has no vote until `lock-client node admit` \
                 lets it in; and if so many restart at once that no majority is left, the cluster has to \
                 be started anew",
            );
        }
    }
    if findings.iter().all(|finding| finding.severity == Severity::Ok)
        && view.state == State::Voting
        && view.keeps_all
        && view.durable == Some(false)
    {
        findings.push(Finding::bad(
            Severity::Warning,
            CHECK,
            "it was admitted before it had every write on disk",
            "no token: but after a restart the node has no vote until `lock-client node admit` lets it in",
            Cure::advice("run `lock-client node admit` for it, which notes what it is now"),
        ));
    }
    findings
}

fn kept(facts: &Facts) -> Finding {
    let appends = match (facts.info("aof_enabled"), facts.setting("appendonly")) {
        (Some(enabled), _) => enabled == "1",
        (None, Some(setting)) => setting == "yes",
        (None, None) => {
            return Finding::unseen(Severity::Unseen, CHECK, "persistence", facts.info_refusal());
        }
    };
    if appends { appended(facts) } else { not_appended(facts) }
}

fn not_appended(facts: &Facts) -> Finding {
    let (found, endangers) = match facts.setting("save") {
        Some("") => (
            "nothing is kept on disk".to_owned(),
            "a restart loses counters and locks: a counter that was set by hand issues its tokens \
             again, any other starts at the client's clock, and grows as long as no clock went back",
        ),
        Some(save) => (
            format!("snapshots only (save {save}), and no append-only file"),
            "a crash brings the counters back as the last snapshot has them, and the tokens issued \
             since then are issued again",
        ),
        None => (
            "no append-only file; whether there are snapshots could not be seen".to_owned(),
            "a crash loses the tokens issued since the last snapshot, and they are issued again",
        ),
    };
    Finding::bad(Severity::TokenLoss, CHECK, found, endangers, append_always())
}

fn appended(facts: &Facts) -> Finding {
    let unseen = |what| Finding::unseen(Severity::Unseen, CHECK, what, facts.settings_refusal());
    let policy = match facts.setting("appendfsync") {
        Some("always") => "always",
        Some("everysec") => {
            return Finding::bad(
                Severity::TokenLoss,
                CHECK,
                "an append-only file, synchronised once a second (appendfsync everysec)",
                "a power loss takes back the last second or two: tokens of that time are issued again",
                append_always(),
            );
        }
        Some(other) => {
            return Finding::bad(
                Severity::TokenLoss,
                CHECK,
                format!("an append-only file, synchronised when it suits (appendfsync {other})"),
                "a power loss takes back half a minute or more: tokens of that time are issued again",
                append_always(),
            );
        }
        None => return unseen("an append-only file is written; how often it is synchronised"),
    };
    match facts.setting("no-appendfsync-on-rewrite") {
        Some("no") => Finding::ok(CHECK, format!("an append-only file, appendfsync {policy}")),
        Some(_) => Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "appendfsync always, but not while the file is rewritten or a snapshot is taken \
             (no-appendfsync-on-rewrite yes)",
            "a power loss in that time takes back tokens, and they are issued again",
            Cure::settings(
                "synchronise the append-only file at all times",
                &[("no-appendfsync-on-rewrite", "no")],
            ),
        ),
        None => unseen("appendfsync always; whether it holds during rewrites"),
    }
}

fn append_always() -> Cure {
    Cure::settings(
        "write each grant to an append-only file, and synchronise it before the answer",
        &[("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no"), ("appendonly", "yes")],
    )
}

fn loading(facts: &Facts) -> Option<Finding> {
    (facts.info("loading") == Some("1")).then(|| {
        Finding::bad(
            Severity::Unusable,
            CHECK,
            "it is still loading what it has on disk",
            "no lock can be taken until it has",
            Cure::advice("wait, and run this again"),
        )
    })
}

fn failed_writes(facts: &Facts) -> Option<Finding> {
    let failed = facts.info("aof_enabled") == Some("1")
        && facts.info("aof_last_write_status").is_some_and(|status| status != "ok");
    failed.then(|| {
        Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "the last write to the append-only file has failed (aof_last_write_status)",
            "tokens that were issued and not written are issued again after a restart; until the \
             disk takes writes, no further ones are issued",
            Cure::advice("make room on the disk, or replace it; Redis goes on by itself"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_only_file_that_nobody_lets_us_look_at_is_no_ok() {
        let seen =
            |settings: &[(&str, &str)]| kept(&Facts::told("aof_enabled:1", settings)).severity;
        assert_eq!(seen(&[]), Severity::Unseen);
        assert_eq!(seen(&[("appendfsync", "always")]), Severity::Unseen);
        let safe = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        assert_eq!(seen(&safe), Severity::Ok);
    }

    #[test]
    fn settings_tell_what_info_does_not() {
        let severity = |appendonly| {
            let settings = [("appendonly", appendonly), ("save", "")];
            kept(&Facts::told("", &settings)).severity
        };
        assert_eq!(severity("no"), Severity::TokenLoss);
        assert_eq!(severity("yes"), Severity::Unseen, "appendfsync is not told");
        assert_eq!(kept(&Facts::told("", &[])).severity, Severity::Unseen);
    }

    #[test]
    fn server_that_is_loading_is_not_usable_yet() {
        let loads = |loading| loading_severity(&format!("loading:{loading}"));
        assert_eq!((loads(1), loads(0)), (Some(Severity::Unusable), None));
    }

    fn loading_severity(info: &str) -> Option<Severity> {
        loading(&Facts::told(info, &[])).map(|finding| finding.severity)
    }
}
