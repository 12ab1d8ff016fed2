//! Whether locks can be taken, tried on one that nobody needs.

use std::time::Duration;

use fence::{Holder, ResourceName};
use redis::{RedisResult, aio::ConnectionLike};
use tokio::time::timeout;

use super::{
    connection::ask,
    finding::{Cure, Finding, Severity},
};
use crate::with_causes;
use lock_client::{AcquireError, Locks, Terms, Ttl};

const CHECK: &str = "locking";
const TTL: Duration = Duration::from_secs(10);
/// How many names are tried until one belongs to this node of a Cluster.
const NAMES: usize = 1_000;
/// What clients do on a node of a cluster.
const NODE_COMMANDS: &str = "+eval +evalsha +ping +publish +subscribe +unsubscribe +get +set +del \
                             +pexpire +pttl +zcard +info +hgetall +hmget +hset +config|get";
/// What follows the hash tag in the keys of a lock.
const SUFFIXES: [&str; 4] = ["lock", "token", "queue", "queue:alive"];

/// A lock's name that nobody else uses.
pub(super) fn random_name() -> ResourceName {
    let name = format!("doctor-{}", Holder::random().as_str());
    name.parse().expect("it has letters and digits only")
}

/// The same, on this node.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn throw_away_name(
    connection: &mut impl ConnectionLike,
) -> RedisResult<ResourceName> {
    let mut name = random_name();
    for _ in 0..NAMES {
        let exists = redis::cmd("EXISTS").arg(key(&name, "lock")).to_owned();
        match ask::<u64>(connection, &exists).await? {
            Err(refusal) if refusal.is_of_another_node() => name = random_name(),
            _ => break,
        }
    }
    Ok(name)
}

/// Takes, renews and releases a lock, and removes its counter.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn locking(
    connection: &mut impl ConnectionLike,
    locks: &Locks,
    name: &ResourceName,
    user: &str,
) -> RedisResult<Finding> {
    let ttl = Ttl::new(TTL).expect("it is in the range");
    let used = used(locks, name, Terms::new(ttl).fair()).await;
    tidied(connection, used, name, user, permissions(user)).await
}

/// Uses a lock of a cluster of nodes. The nodes are tidied up when each is looked at.
pub(super) async fn on_a_majority(locks: &Locks, name: &ResourceName, ttl: Ttl) -> Finding {
    let used = used(locks, name, Terms::new(ttl)).await;
    // Whoever doesn't answer isn't waited for.
    let _ = timeout(TTL, locks.wait_for_background()).await;
    match used {
        Ok(()) => {
            Finding::ok(CHECK, "took, renewed and released a lock on a majority of the nodes")
        }
        Err(trouble) => Finding::bad(
            Severity::Unusable,
            CHECK,
            trouble,
            "locks can't be used here, or not for longer than their ttl",
            Cure::advice("see to the findings of each node; then run this again"),
        ),
    }
}

/// What came of the use of a lock, when what it left was removed.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn tidied(
    connection: &mut impl ConnectionLike,
    used: Result<(), String>,
    name: &ResourceName,
    user: &str,
    permissions: Cure,
) -> RedisResult<Finding> {
    let keys = SUFFIXES.map(|suffix| key(name, suffix));
    let removed = ask::<u64>(connection, redis::cmd("DEL").arg(&keys)).await?;
    let trouble = match (used, removed) {
        (Ok(()), Ok(_)) => {
            return Ok(Finding::ok(
                CHECK,
                format!("user {user} took, renewed and released a lock"),
            ));
        }
        (Err(trouble), Ok(_)) => trouble,
        (Ok(()), Err(refusal)) => {
            let left = &keys[1];
            return Ok(Finding::bad(
                Severity::Warning,
                CHECK,
                format!(
                    "user {user} can use locks, but not remove {left}, made for this: {refusal}"
                ),
                "nothing but a few bytes of memory",
                Cure { commands: vec![format!("DEL {left}")], ..Cure::advice("remove it") },
            ));
        }
        (Err(trouble), Err(refusal)) => {
            format!("{trouble}; what is left of {} could not be removed: {refusal}", keys[1])
        }
    };
    let cure = if is_forbidden(&trouble) {
        permissions
    } else {
        Cure::advice("see to what Redis answers, and to the other findings; then run this again")
    };
    let found = format!("user {user} {trouble}");
    let endangers = "locks can't be used here, or not for longer than their ttl";
    Ok(Finding::bad(Severity::Unusable, CHECK, found, endangers, cure))
}

/// Uses a lock as programs do, with the very scripts.
async fn used(locks: &Locks, name: &ResourceName, terms: Terms) -> Result<(), String> {
    let terms = terms.without_renewal();
    let acquired = locks.acquire(name, terms.no_wait()).await;
    let lease = acquired.map_err(|error| format!("can't take a lock: {}", with_causes(&error)))?;
    let renewed = lease.renew().await;
    // Somebody else comes to the queue, and goes; another listens.
    let queued = locks.acquire(name, terms.no_wait()).await;
    let listened = locks.wakeups(name).await;
    let released = lease.release().await;
    renewed.map_err(|error| format!("can't renew a lease: {}", with_causes(&error)))?;
    released.map_err(|error| format!("can't release a lock: {}", with_causes(&error)))?;
    drop(listened.map_err(|error| format!("can't wait for a lock: {}", with_causes(&error)))?);
    match queued {
        Ok(_) | Err(AcquireError::Contended { .. }) => Ok(()),
        Err(error) => Err(format!("can't wait for a lock: {}", with_causes(&error))),
    }
}

/// Whether it was refused because of who asked. Redis says so in different words, by its version and
/// by whether it was asked by a script.
pub(super) fn is_forbidden(trouble: &str) -> bool {
    ["NOPERM", "NoPerm", "no permissions", "The user executing the script", "ACL failure"]
        .iter()
        .any(|words| trouble.contains(words))
}

/// What a user needs for locks.
pub(super) fn permissions(user: &str) -> Cure {
    allowed(
        user,
        "+eval +evalsha +ping +publish +subscribe +unsubscribe +get +set +del +pexpire +pttl +time \
         +zadd +zrem +zrange +zscore +zcard",
    )
}

/// What a user needs for locks on a node of a cluster.
pub(super) fn node_permissions(user: &str) -> Cure {
    allowed(user, NODE_COMMANDS)
}

fn allowed(user: &str, commands: &str) -> Cure {
    // Redis refuses a pattern to those who have all keys or channels, and what comes with it.
    let rules = [commands, "~fenced:*", "&fenced:*"];
    Cure {
        commands: rules.map(|rule| format!("ACL SETUSER {user} {rule}")).into(),
        ..Cure::advice(
            "allow the user what the lock scripts do, on our keys and channels (those who have all \
             of them already need no pattern); ACL SAVE or CONFIG REWRITE keeps it so",
        )
    }
}

/// One of a lock's keys; a throw-away name has nothing in it that would have to be escaped.
fn key(name: &ResourceName, suffix: &str) -> String {
    format!("fenced:{{{}}}:{suffix}", name.as_str())
}
