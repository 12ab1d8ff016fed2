//! Which keys survive a crash or a power loss.

use super::{facts::Facts, unseen};
use crate::check::{Check, Cure, Verdict};

const APPENDONLY: &str = "appendonly";
const APPENDFSYNC: &str = "appendfsync";
const REWRITE: &str = "no-appendfsync-on-rewrite";

/// Checks whether each write is on disk before it is answered.
pub(super) fn append_only_file(facts: &Facts) -> Vec<Check> {
    let is_on = match (facts.info("aof_enabled"), facts.setting(APPENDONLY)) {
        (Some(enabled), _) => enabled == "1",
        (None, Some(setting)) => setting == "yes",
        (None, None) => return vec![unseen(APPENDONLY, "persistence", facts.info_rejection())],
    };
    if !is_on {
        return vec![no_append_only_file(facts)];
    }
    let mut checks = vec![Check::ok(APPENDONLY, "yes"), appendfsync(facts), on_rewrite(facts)];
    checks.extend(failed_writes(facts));
    checks
}

fn no_append_only_file(facts: &Facts) -> Check {
    let (found, why) = match facts.setting("save") {
        Some("") => (
            "no: nothing is kept on disk".to_owned(),
            "a restart loses fences, counters and locks: older tokens are accepted again; a counter that \
             was set by hand issues its tokens again; any other starts at the client's clock, which is \
             higher unless a clock went back",
        ),
        Some(save) => (
            format!("no: snapshots only (save {save})"),
            "a crash resets fences and counters to the last snapshot, and the tokens issued since then are \
             issued again",
        ),
        None => (
            "no; whether there are snapshots could not be seen".to_owned(),
            "a crash loses fences, and tokens issued since the last snapshot, which are issued again",
        ),
    };
    Check::bad(Verdict::UnfitForFence, APPENDONLY, found, why, append_always())
}

fn appendfsync(facts: &Facts) -> Check {
    let bad = |found: String, why| {
        Check::bad(Verdict::UnfitForFence, APPENDFSYNC, found, why, append_always())
    };
    match facts.setting(APPENDFSYNC) {
        Some("always") => Check::ok(APPENDFSYNC, "always"),
        Some("everysec") => bad(
            "everysec: the file is synced once a second".to_owned(),
            "a power loss loses fences of the last second or two, and tokens of that time are issued again",
        ),
        Some(other) => bad(
            format!("{other}: the file is synced by the kernel"),
            "a power loss loses fences of half a minute or more, and tokens of that time are issued again",
        ),
        None => {
            let fact = "how often the append-only file is synced";
            unseen(APPENDFSYNC, fact, facts.settings_rejection())
        }
    }
}

fn on_rewrite(facts: &Facts) -> Check {
    match facts.setting(REWRITE) {
        Some("no") => Check::ok(REWRITE, "no"),
        Some(_) => Check::bad(
            Verdict::UnfitForFence,
            REWRITE,
            "yes: nothing is synced while the file is rewritten or a snapshot is taken",
            "a power loss in that time loses fences, and tokens, which are issued again",
            Cure::new(
                "sync the append-only file at all times; in redis.conf, too",
                [format!("CONFIG SET {REWRITE} no")],
            ),
        ),
        None => {
            let fact = "whether the append-only file is synced during rewrites";
            unseen(REWRITE, fact, facts.settings_rejection())
        }
    }
}

fn append_always() -> Cure {
    let settings = [(APPENDFSYNC, "always"), (REWRITE, "no"), (APPENDONLY, "yes")];
    Cure::new(
        "write each change to an append-only file, and sync it before the answer; in redis.conf, too: the \
         same lines without CONFIG SET",
        settings.map(|(name, value)| format!("CONFIG SET {name} {value}")),
    )
}

/// Whether the server has not read its data yet.
pub(super) fn loading(facts: &Facts) -> Option<Check> {
    (facts.info("loading") == Some("1")).then(|| {
        Check::bad(
            Verdict::Unfit,
            "loading",
            "it is still loading its data from disk",
            "nothing can be locked or written until then",
            "wait, and run this again",
        )
    })
}

fn failed_writes(facts: &Facts) -> Option<Check> {
    const NAME: &str = "aof_last_write_status";
    let failed = facts.info(NAME).is_some_and(|status| status != "ok");
    failed.then(|| {
        Check::bad(
            Verdict::UnfitForFence,
            NAME,
            "the last write to the append-only file has failed",
            "what was acknowledged and not written is lost at a restart; nothing more is acknowledged until \
             a write succeeds",
            "make room on the disk, or replace it; Redis then continues by itself",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(info: &str, settings: &[(&str, &str)]) -> Verdict {
        let checks = append_only_file(&Facts::new(info, settings));
        checks.iter().map(|check| check.verdict).max().unwrap()
    }

    #[test]
    fn append_only_file_with_unseen_settings_is_not_ok() {
        assert_eq!(worst("aof_enabled:1", &[]), Verdict::Unseen);
        assert_eq!(worst("aof_enabled:1", &[(APPENDFSYNC, "always")]), Verdict::Unseen);
        let safe = [(APPENDFSYNC, "always"), (REWRITE, "no")];
        assert_eq!(worst("aof_enabled:1", &safe), Verdict::Ok);
    }

    #[test]
    fn settings_are_used_where_info_is_missing() {
        assert_eq!(worst("", &[(APPENDONLY, "no"), ("save", "")]), Verdict::UnfitForFence);
        let unsynced = [(APPENDONLY, "yes"), ("save", "")];
        assert_eq!(worst("", &unsynced), Verdict::Unseen, "appendfsync is unknown");
        assert_eq!(worst("", &[]), Verdict::Unseen);
    }

    #[test]
    fn server_that_is_loading_is_unfit() {
        let verdict = |info: &str| loading(&Facts::new(info, &[])).map(|check| check.verdict);
        assert_eq!((verdict("loading:1"), verdict("loading:0")), (Some(Verdict::Unfit), None));
    }
}
