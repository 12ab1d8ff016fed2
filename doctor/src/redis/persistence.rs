//! Which keys survive a crash or a power loss.

use super::{facts::Facts, unseen};
use crate::check::{Check, Cure, Verdict};

const APPENDONLY: &str = "appendonly";
const APPENDFSYNC: &str = "appendfsync";
const REWRITE: &str = "no-appendfsync-on-rewrite";
const LAST_WRITE: &str = "aof_last_write_status";

/// Checks whether each write is on disk before it is answered.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    if facts.info("loading") == Some("1") {
        let found = "it is still loading its data from disk";
        let why = "nothing can be locked or written until then";
        checks.push(Check::bad(Verdict::Unfit, "loading", found, why, "wait, and run this again"));
    }
    let is_on = match (facts.info("aof_enabled"), facts.setting(APPENDONLY)) {
        (Some(enabled), _) => enabled == "1",
        (None, Some(setting)) => setting == "yes",
        (None, None) => {
            checks.push(unseen(APPENDONLY, facts.info_error()));
            return checks;
        }
    };
    let found = match facts.setting("save") {
        _ if is_on => "yes".to_owned(),
        Some("") => "no: nothing is kept on disk".to_owned(),
        Some(save) => format!("no: snapshots only (save {save})"),
        None => "no; whether there are snapshots could not be seen".to_owned(),
    };
    checks.push(Check::ok(APPENDONLY, found).unless(
        is_on,
        Verdict::UnfitForFence,
        "a crash resets fences and counters to the last snapshot, if there is one: older tokens are accepted again, and \
         tokens are issued again; a missing counter starts at the client's clock, which is higher unless a clock went \
         back, or the counter was set by hand",
        append_always(),
    ));
    if !is_on {
        return checks;
    }
    checks.push(must_be(
        facts,
        APPENDFSYNC,
        "always",
        "a power loss loses the fences and grants of the last second or two with everysec, of half a minute or more \
         with no: those tokens are issued again",
    ));
    checks.push(must_be(
        facts,
        REWRITE,
        "no",
        "a power loss while the file is rewritten or a snapshot is taken loses fences and grants: those tokens are issued \
         again",
    ));
    checks.push(last_write(facts));
    checks
}

fn last_write(facts: &Facts) -> Check {
    let Some(status) = facts.info(LAST_WRITE) else {
        return unseen(LAST_WRITE, facts.info_error());
    };
    Check::ok(LAST_WRITE, status).unless(
        status == "ok",
        Verdict::UnfitForFence,
        "what was acknowledged and not written is lost at a restart; nothing more is acknowledged until a write succeeds",
        "free space on the disk, or replace it; Redis then continues by itself",
    )
}

fn must_be(facts: &Facts, name: &'static str, safe: &str, why: &'static str) -> Check {
    match facts.setting(name) {
        None => unseen(name, facts.settings_error()),
        Some(found) => {
            let is_safe = found == safe;
            Check::ok(name, found).unless(is_safe, Verdict::UnfitForFence, why, append_always())
        }
    }
}

fn append_always() -> Cure {
    let settings = [(APPENDFSYNC, "always"), (REWRITE, "no"), (APPENDONLY, "yes")];
    Cure::new(
        "write each change to an append-only file, and sync it before the answer; in redis.conf, too: the same lines \
         without CONFIG SET",
        settings.map(|(name, value)| format!("CONFIG SET {name} {value}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_or_not_loaded_is_not_ok() {
        const AOF: &str = "aof_enabled:1\r\naof_last_write_status:ok";
        const FAILED: &str = "aof_enabled:1\r\naof_last_write_status:err";
        let safe = [(APPENDFSYNC, "always"), (REWRITE, "no")];
        for (info, settings, expected) in [
            (AOF, &safe[..], Verdict::Ok),
            (AOF, &safe[..1], Verdict::Unseen),
            (AOF, &[], Verdict::Unseen),
            (FAILED, &safe, Verdict::UnfitForFence),
            ("aof_enabled:1", &safe, Verdict::Unseen),
            // Settings count where INFO is missing.
            ("", &[(APPENDONLY, "no"), ("save", "")], Verdict::UnfitForFence),
            ("", &[(APPENDONLY, "yes"), safe[0], safe[1]], Verdict::Unseen),
            ("", &[], Verdict::Unseen),
            (&format!("{AOF}\r\nloading:1"), &safe, Verdict::Unfit),
            (&format!("{AOF}\r\nloading:0"), &safe, Verdict::Ok),
        ] {
            let checks = checks(&Facts::new(info, settings));
            let worst = checks.iter().map(|check| check.verdict).max();
            assert_eq!(worst, Some(expected), "{info:?} {settings:?}");
        }
    }
}
