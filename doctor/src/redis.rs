//! A Redis: which of its keys a restart, a failover or a full memory loses.

mod facts;
mod persistence;
mod proxy;
mod replication;
mod server;
mod version;

use ::redis::RedisResult;

use self::facts::Facts;
pub use self::{
    proxy::proxy,
    server::{Rejection, Server, ask, separate_rejection},
};
use crate::{
    check::{Check, Cure, Verdict},
    clock::Clock,
    report::Report,
};

const UNSEEN: &str = "whether the disk keeps what was synced; replicas that are not connected now; what may \
                      be promoted; other clients, which may delete any key";

/// Runs all checks. A command that the server rejects is a check that is unseen.
///
/// # Errors
/// If the connection is lost.
pub async fn examine(server: &mut Server) -> RedisResult<Report> {
    let user = server.user();
    let connection = &mut server.commands;
    let facts = Facts::query(connection, &user).await?;
    let mut checks = vec![version::version(&facts)];
    checks.extend(persistence::loading(&facts));
    checks.extend(persistence::append_only_file(&facts));
    checks.push(eviction(&facts));
    checks.extend(replication::replication(connection, &facts).await?);
    checks.push(clock(connection).await?);
    let system = version::server(&facts);
    let system = system.unwrap_or_else(|| "a server that does not report its version".to_owned());
    let report = Report::new(system, Some(facts.user().to_owned()), checks);
    Ok(Report { unseen: Some(UNSEEN.to_owned()), ..report })
}

/// A fact that the server did not report.
fn unseen(name: &'static str, fact: &str, rejection: Option<&Rejection>) -> Check {
    let reason = rejection.map_or("this server doesn't report it".to_owned(), Rejection::to_string);
    Check::unseen(
        name,
        format!("{fact} could not be seen: {reason}"),
        "run this as a user who may use INFO, CONFIG GET, TIME and PUBSUB; if a hosting service forbids \
         these, look at the settings in its own console",
    )
}

/// Checks which keys Redis evicts when its memory is full.
fn eviction(facts: &Facts) -> Check {
    const NAME: &str = "maxmemory-policy";
    let value = |field, setting| facts.info(field).or_else(|| facts.setting(setting));
    let Some(policy) = value("maxmemory_policy", NAME) else {
        return unseen(NAME, "the eviction policy", facts.settings_rejection());
    };
    if policy == "noeviction" {
        return Check::ok(NAME, "noeviction: no key is evicted");
    }
    let limit = match value("maxmemory", "maxmemory") {
        Some("0") => "maxmemory is 0, so eviction starts when someone sets a limit".to_owned(),
        Some(limit) => format!("maxmemory {limit} bytes"),
        None => "whether there is a limit could not be seen".to_owned(),
    };
    let found = format!("{policy}: keys are evicted ({limit})");
    let cure = Cure::new(
        "evict nothing: when the memory is full, Redis then rejects grants and claims, and loses none",
        ["CONFIG SET maxmemory-policy noeviction"],
    );
    // Counters and fences have no expiry, unless the lock client keeps counters for a limited time.
    if policy.starts_with("volatile-") {
        let why = "a lock may be evicted before its ttl ends; counters and fences stay, unless counters are \
                   kept for a limited time only";
        return Check::bad(Verdict::Warning, NAME, found, why, cure);
    }
    let why = "a full memory evicts fences, and counters: a counter that was set by hand then issues its \
               tokens again, any other starts at the client's clock; locks are evicted, too";
    Check::bad(Verdict::UnfitForFence, NAME, found, why, cure)
}

/// Compares the server's clock with this machine's.
async fn clock(connection: &mut impl ::redis::aio::ConnectionLike) -> RedisResult<Check> {
    let mut clock = Clock::default();
    while clock.needs_more() {
        let sample = clock.sample();
        match ask::<(u64, u64)>(connection, &::redis::cmd("TIME")).await? {
            Ok(time) => clock.add(sample, time),
            Err(rejection) => {
                let check = unseen("clock", "its clock", Some(&rejection));
                return Ok(check.lowered("locks may end early or late", None));
            }
        }
    }
    Ok(clock.check())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ::redis::{Cmd, Pipeline, RedisFuture, Value, aio::ConnectionLike};

    use super::*;

    /// A server whose clock is this many seconds ahead.
    struct Ahead(i64);

    impl ConnectionLike for Ahead {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let seconds = i64::try_from(now.as_secs()).unwrap() + self.0;
            let time = [seconds, now.subsec_micros().into()].map(Value::Int);
            Box::pin(async { Ok(Value::Array(time.into())) })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            unreachable!("one command at a time")
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    #[tokio::test]
    async fn clocks_that_differ_are_reported() {
        for (seconds, expected) in
            [(0, Verdict::Ok), (60, Verdict::Warning), (-60, Verdict::Warning)]
        {
            let check = clock(&mut Ahead(seconds)).await.unwrap();
            assert_eq!(check.verdict, expected, "{}", check.found);
        }
    }
}
