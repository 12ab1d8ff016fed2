//! The kind and version of the server.

use super::{
    facts::Facts,
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "version";
/// The first version with `SET … KEEPTTL`, and with users.
const USABLE: (u32, u32) = (6, 0);
/// The first version whose scripts return errors with their codes, such as READONLY.
const GOOD: (u32, u32) = (7, 0);

/// Checks the kind and the version of the server.
pub(super) fn version(facts: &Facts) -> Finding {
    let Some(version) = facts.info("redis_version") else {
        return Finding::unseen(Severity::Warning, CHECK, "the version", facts.info_rejection());
    };
    let server = server(facts).unwrap_or_default();
    if facts.info("redis_mode") == Some("sentinel") {
        return Finding::bad(
            Severity::Unusable,
            CHECK,
            format!("{server} is a Sentinel, which keeps no keys"),
            "no lock can be acquired here",
            Cure::advice("name the primary that it watches: SENTINEL GET-MASTER-ADDR-BY-NAME"),
        );
    }
    if facts.info("dragonfly_version").is_some() {
        return Finding::bad(
            Severity::Warning,
            CHECK,
            format!("{server} is not Redis, and only has its protocol"),
            "it may store data in other ways than its answers to these checks suggest",
            Cure::advice("read in its own manual what survives a crash and a power loss"),
        );
    }
    match parsed(version) {
        Some(version) if version >= GOOD => Finding::ok(CHECK, server),
        Some(version) if version >= USABLE => Finding::bad(
            Severity::Warning,
            CHECK,
            format!("{server} is older than {}.{}", GOOD.0, GOOD.1),
            "when it becomes a replica, the errors of scripts don't show that, and clients stay",
            Cure::advice(format!("update Redis to {}.{} or newer", GOOD.0, GOOD.1)),
        ),
        Some(_) => Finding::bad(
            Severity::Unusable,
            CHECK,
            format!("{server} is older than {}.{}", USABLE.0, USABLE.1),
            "the lock scripts need commands that it doesn't have",
            Cure::advice(format!("update Redis to {}.{} or newer", USABLE.0, USABLE.1)),
        ),
        None => {
            Finding::unseen(Severity::Warning, CHECK, &format!("the version in {version:?}"), None)
        }
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

    fn severity(info: &str) -> Severity {
        version(&Facts::new(info, &[])).severity
    }

    #[test]
    fn servers_older_than_the_scripts_need_are_unusable() {
        for (number, expected) in [
            ("2.8.24", Severity::Unusable),
            ("5.0.14", Severity::Unusable),
            ("6.0.0", Severity::Warning),
            ("7.0.15", Severity::Ok),
            ("10.0.0", Severity::Ok),
            ("unstable", Severity::Warning),
        ] {
            assert_eq!(severity(&format!("redis_version:{number}")), expected, "{number}");
        }
    }

    #[test]
    fn servers_with_only_the_protocol_of_redis_are_named() {
        let valkey = Facts::new("redis_version:7.2.4\r\nvalkey_version:8.0.1", &[]);
        assert_eq!(version(&valkey).found, "valkey 8.0.1");
        let dragonfly = "redis_version:7.4.0\r\ndragonfly_version:df-v1.25.0";
        assert_eq!(severity(dragonfly), Severity::Warning);
    }
}
