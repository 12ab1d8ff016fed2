//! The kind and version of the server.

use super::{facts::Facts, unseen};
use crate::check::{Check, Verdict};

const NAME: &str = "version";
/// The first version with `SET … KEEPTTL`, and with users.
const USABLE: (u32, u32) = (6, 0);
/// The first version whose scripts return errors with their codes, such as READONLY.
const GOOD: (u32, u32) = (7, 0);

/// Checks the kind and the version of the server.
pub(super) fn version(facts: &Facts) -> Check {
    let unseen = |fact: &str| {
        let check = unseen(NAME, fact, facts.info_rejection());
        check.lowered("an older version may lack what scripts need", None)
    };
    let Some(version) = facts.info("redis_version") else {
        return unseen("the version");
    };
    let server = server(facts).unwrap_or_default();
    if facts.info("redis_mode") == Some("sentinel") {
        return Check::bad(
            Verdict::Unfit,
            NAME,
            format!("{server} is a Sentinel, which keeps no keys"),
            "nothing can be kept here",
            "name the primary that it watches: SENTINEL GET-MASTER-ADDR-BY-NAME",
        );
    }
    if facts.info("dragonfly_version").is_some() {
        return Check::bad(
            Verdict::Warning,
            NAME,
            format!("{server} is not Redis, and only has its protocol"),
            "it may store data in other ways than its answers to these checks suggest",
            "read in its own manual what survives a crash and a power loss",
        );
    }
    let (major, minor) = GOOD;
    let cure = format!("update Redis to {major}.{minor} or newer");
    match parsed(version) {
        Some(version) if version >= GOOD => Check::ok(NAME, server),
        Some(version) if version >= USABLE => Check::bad(
            Verdict::Warning,
            NAME,
            format!("{server} is older than {major}.{minor}"),
            "when it becomes a replica, the errors of scripts don't show that, and clients stay",
            cure,
        ),
        Some(_) => Check::bad(
            Verdict::Unfit,
            NAME,
            format!("{server} is older than {}.{}", USABLE.0, USABLE.1),
            "the scripts need commands that it doesn't have",
            cure,
        ),
        None => unseen(&format!("the version in {version:?}")),
    }
}

/// The server's name and version.
pub(super) fn server(facts: &Facts) -> Option<String> {
    let named = ["valkey", "dragonfly"].into_iter().find_map(|name| {
        let version = facts.info(&format!("{name}_version"))?;
        Some(format!("{name} {}", version.trim_start_matches("df-v")))
    });
    named.or_else(|| Some(format!("redis {}", facts.info("redis_version")?)))
}

fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(info: &str) -> Verdict {
        version(&Facts::new(info, &[])).verdict
    }

    #[test]
    fn servers_older_than_the_scripts_need_are_unfit() {
        for (number, expected) in [
            ("2.8.24", Verdict::Unfit),
            ("5.0.14", Verdict::Unfit),
            ("6.0.0", Verdict::Warning),
            ("7.0.15", Verdict::Ok),
            ("10.0.0", Verdict::Ok),
            ("unstable", Verdict::Warning),
        ] {
            assert_eq!(verdict(&format!("redis_version:{number}")), expected, "{number}");
        }
    }

    #[test]
    fn servers_with_only_the_protocol_of_redis_are_named() {
        let valkey = Facts::new("redis_version:7.2.4\r\nvalkey_version:8.0.1", &[]);
        assert_eq!(version(&valkey).found, "valkey 8.0.1");
        let dragonfly = "redis_version:7.4.0\r\ndragonfly_version:df-v1.25.0";
        assert_eq!(verdict(dragonfly), Verdict::Warning);
    }
}
