//! Which counters survive a crash or a power loss.

use super::{
    facts::Facts,
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "persistence";

/// Checks whether each grant is on disk before it is answered.
pub(super) fn persistence(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![storage(facts)];
    findings.extend(loading(facts));
    findings.extend(failed_writes(facts));
    findings
}

/// The same for a node of a Redlock cluster. A restarted node has no vote, whatever it kept. So its
/// disk matters only if a majority restarts at once.
pub(super) fn node_persistence(facts: &Facts) -> Vec<Finding> {
    let mut findings = persistence(facts);
    for finding in &mut findings {
        if matches!(finding.severity, Severity::TokenLoss | Severity::Unseen) {
            finding.severity = Severity::Warning;
            finding.endangers = Some(
                "no token, because a restarted node has no vote until it is admitted; but if a \
                 majority restarts at once, the issued tokens are on no disk, and the counters \
                 start again at the clients' clocks",
            );
        }
    }
    findings
}

fn storage(facts: &Facts) -> Finding {
    let appends = match (facts.info("aof_enabled"), facts.setting("appendonly")) {
        (Some(enabled), _) => enabled == "1",
        (None, Some(setting)) => setting == "yes",
        (None, None) => {
            return Finding::unseen(Severity::Unseen, CHECK, "persistence", facts.info_rejection());
        }
    };
    if appends { append_only_file(facts) } else { no_append_only_file(facts) }
}

fn no_append_only_file(facts: &Facts) -> Finding {
    let (found, endangers) = match facts.setting("save") {
        Some("") => (
            "nothing is kept on disk".to_owned(),
            "a restart loses counters and locks: a counter that was set by hand then issues its \
             tokens again; any other starts at the client's clock, which is higher unless a clock \
             went back",
        ),
        Some(save) => (
            format!("snapshots only (save {save}), and no append-only file"),
            "a crash resets the counters to the last snapshot, and the tokens issued since then \
             are issued again",
        ),
        None => (
            "no append-only file; whether there are snapshots could not be seen".to_owned(),
            "a crash loses the tokens issued since the last snapshot, and they are issued again",
        ),
    };
    Finding::bad(Severity::TokenLoss, CHECK, found, endangers, append_always())
}

fn append_only_file(facts: &Facts) -> Finding {
    let unseen = |fact| Finding::unseen(Severity::Unseen, CHECK, fact, facts.settings_rejection());
    let policy = match facts.setting("appendfsync") {
        Some("always") => "always",
        Some("everysec") => {
            return Finding::bad(
                Severity::TokenLoss,
                CHECK,
                "an append-only file, synchronised once a second (appendfsync everysec)",
                "a power loss loses the last second or two: tokens of that time are issued again",
                append_always(),
            );
        }
        Some(other) => {
            return Finding::bad(
                Severity::TokenLoss,
                CHECK,
                format!("an append-only file, synchronised by the kernel (appendfsync {other})"),
                "a power loss loses half a minute or more: tokens of that time are issued again",
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
            "a power loss in that time loses tokens, and they are issued again",
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
            "it is still loading its data from disk",
            "no lock can be acquired until then",
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
            "tokens that were issued and not written are issued again after a restart; no new ones \
             are issued until a write succeeds",
            Cure::advice("make room on the disk, or replace it; Redis then continues by itself"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_only_file_with_unseen_settings_is_not_ok() {
        let seen =
            |settings: &[(&str, &str)]| storage(&Facts::new("aof_enabled:1", settings)).severity;
        assert_eq!(seen(&[]), Severity::Unseen);
        assert_eq!(seen(&[("appendfsync", "always")]), Severity::Unseen);
        let safe = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        assert_eq!(seen(&safe), Severity::Ok);
    }

    #[test]
    fn settings_are_used_where_info_is_missing() {
        let severity = |appendonly| {
            let settings = [("appendonly", appendonly), ("save", "")];
            storage(&Facts::new("", &settings)).severity
        };
        assert_eq!(severity("no"), Severity::TokenLoss);
        assert_eq!(severity("yes"), Severity::Unseen, "appendfsync is unknown");
        assert_eq!(storage(&Facts::new("", &[])).severity, Severity::Unseen);
    }

    #[test]
    fn server_that_is_loading_is_not_usable_yet() {
        let loads = |loading| loading_severity(&format!("loading:{loading}"));
        assert_eq!((loads(1), loads(0)), (Some(Severity::Unusable), None));
    }

    fn loading_severity(info: &str) -> Option<Severity> {
        loading(&Facts::new(info, &[])).map(|finding| finding.severity)
    }
}
