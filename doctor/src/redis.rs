//! A Redis: which of its keys a restart, a failover or a full memory loses.

mod facts;
mod persistence;
mod proxy;
mod replication;
mod server;
mod slots;

use ::redis::{RedisResult, aio::ConnectionLike};

use self::facts::Facts;
pub use self::{
    proxy::proxy,
    server::{ErrorReply, Server, ask, separate_error_reply},
};
use crate::{
    check::{Check, Cure, Verdict},
    clock, connections,
    report::Report,
    version,
};

/// The first version with `SET … KEEPTTL`, and with users.
const USABLE: [u32; 2] = [6, 0];
/// The first version whose scripts return errors with their codes, such as READONLY.
const GOOD: [u32; 2] = [7, 0];
const UNSEEN: &str = "whether the disk keeps what was synced; replicas that are not connected now; what may be \
                      promoted; other clients, which may delete any key";

/// Runs all checks. A command that the server rejects is a check that is unseen.
///
/// # Errors
/// If the connection is lost.
pub async fn examine(server: &mut Server) -> RedisResult<Report> {
    let user = server.user();
    let connection = &mut server.commands;
    let facts = Facts::query(connection, &user).await?;
    let mut checks = vec![version(&facts)];
    checks.extend(persistence::checks(&facts));
    checks.push(eviction(&facts));
    checks.extend(replication::checks(connection, &facts).await?);
    checks.push(clock(connection).await?);
    if facts.info("redis_mode") == Some("cluster") {
        checks.push(slots::check(server).await?);
    }
    let system = title(&facts).unwrap_or("a server that does not report its version".to_owned());
    let report = Report::new(system, Some(facts.user().to_owned()), checks);
    Ok(Report { unseen: Some(UNSEEN.to_owned()), ..report })
}

/// A fact that the server did not report.
fn unseen(name: &'static str, rejection: Option<&ErrorReply>) -> Check {
    let reason =
        rejection.map_or("this server doesn't report it".to_owned(), ErrorReply::to_string);
    Check::unseen(
        name,
        format!("it could not be seen: {reason}"),
        "run this as a user who may use INFO, CONFIG GET, TIME and PUBSUB; if a hosting service forbids these, look at \
         the settings in its own console",
    )
}

/// The server's name and version.
fn title(facts: &Facts) -> Option<String> {
    let named = ["valkey", "dragonfly"].into_iter().find_map(|name| {
        let version = facts.info(&format!("{name}_version"))?;
        Some(format!("{name} {}", version.trim_start_matches("df-v")))
    });
    named.or_else(|| Some(format!("redis {}", facts.info("redis_version")?)))
}

fn version(facts: &Facts) -> Check {
    const NAME: &str = "version";
    let numbers = facts.info("redis_version").and_then(version::numbers);
    let (Some(title), Some(numbers)) = (title(facts), numbers) else {
        let check = unseen(NAME, facts.info_error());
        return check.lowered("an older version may lack what scripts need");
    };
    Check::ok(NAME, title)
        .unless(
            facts.info("redis_mode") != Some("sentinel"),
            Verdict::Unfit,
            "it is a Sentinel, which keeps no keys",
            "name the primary that it watches: SENTINEL GET-MASTER-ADDR-BY-NAME",
        )
        .unless(
            facts.info("dragonfly_version").is_none(),
            Verdict::Warning,
            "it only has the protocol of Redis, and may store data in other ways than these checks suggest",
            "read in its own manual what survives a crash and a power loss",
        )
        .unless(
            numbers[..] >= USABLE[..],
            Verdict::Unfit,
            "the scripts need commands that it doesn't have",
            "update Redis to 7.0 or newer",
        )
        .unless(
            numbers[..] >= GOOD[..],
            Verdict::Warning,
            "when it becomes a replica, the errors of scripts don't show that, and clients stay",
            "update Redis to 7.0 or newer",
        )
}

/// Checks which keys Redis evicts when its memory is full.
fn eviction(facts: &Facts) -> Check {
    const NAME: &str = "maxmemory-policy";
    let value = |field, setting| facts.info(field).or_else(|| facts.setting(setting));
    let Some(policy) = value("maxmemory_policy", NAME) else {
        return unseen(NAME, facts.settings_error());
    };
    let cure = || {
        Cure::new(
            "evict nothing: when the memory is full, Redis then rejects grants and claims, and loses none",
            ["CONFIG SET maxmemory-policy noeviction"],
        )
    };
    let limit = value("maxmemory", "maxmemory").unwrap_or("not seen");
    Check::ok(NAME, format!("{policy}; maxmemory is {limit}, where 0 is no limit"))
        // Counters and fences have no expiry, unless the lock client keeps counters for a limited time.
        .unless(
            !policy.starts_with("volatile-"),
            Verdict::Warning,
            "a lock may be evicted before its ttl ends; counters and fences stay, unless counters are kept for a \
             limited time only",
            cure(),
        )
        .unless(
            policy == "noeviction",
            Verdict::UnfitForFence,
            "a full memory evicts fences, and counters: a counter that was set by hand then issues its tokens again, \
             any other starts at the client's clock; locks are evicted, too",
            cure(),
        )
}

/// A client that waits has a connection for its requests, and one over which it is notified.
const WAITING_CONNECTIONS: i64 = 2;

/// Compares the limit of connections with those that are open.
///
/// # Errors
/// If the connection is lost.
pub async fn connections(connection: &mut impl ConnectionLike) -> RedisResult<Check> {
    let facts = Facts::query_info(connection).await?;
    let number = |field| facts.info(field)?.parse::<i64>().ok();
    let (Some(limit), Some(clients)) = (number("maxclients"), number("connected_clients")) else {
        let check = unseen("connections", facts.info_error());
        return Ok(check.lowered("it may have no room for the connections of waiting clients"));
    };
    // The limit counts those of a Cluster's nodes and of replicas, too.
    let others = ["connected_slaves", "cluster_connections"].into_iter().filter_map(number);
    Ok(connections::room(limit, clients + others.sum::<i64>(), WAITING_CONNECTIONS))
}

async fn clock(connection: &mut impl ConnectionLike) -> RedisResult<Check> {
    let compared =
        clock::compare(async || match ask::<(i64, i64)>(connection, &::redis::cmd("TIME")).await {
            Ok(Ok((seconds, micros))) => Ok(i128::from(seconds) * 1_000_000 + i128::from(micros)),
            Ok(Err(rejection)) => Err(Ok(rejection)),
            Err(error) => Err(Err(error)),
        });
    match compared.await {
        Ok(check) => Ok(check),
        Err(Ok(rejection)) => {
            Ok(unseen("clock", Some(&rejection)).lowered("locks may end early or late"))
        }
        Err(Err(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_kinds_of_servers_are_judged() {
        for (info, expected) in [
            ("redis_version:2.8.24", Verdict::Unfit),
            ("redis_version:5.0.14", Verdict::Unfit),
            ("redis_version:6.0.0", Verdict::Warning),
            ("redis_version:7.0.15", Verdict::Ok),
            ("redis_version:10.0.0", Verdict::Ok),
            ("redis_version:unstable", Verdict::Warning),
            ("redis_version:7.4.0\r\ndragonfly_version:df-v1.25.0", Verdict::Warning),
            ("redis_version:7.2.4\r\nvalkey_version:8.0.1", Verdict::Ok),
        ] {
            assert_eq!(version(&Facts::new(info, &[])).verdict, expected, "{info}");
        }
    }
}
