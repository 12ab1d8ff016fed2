//! Whether locks can be used, tested with a lock that no other client uses.

use std::time::Duration;

use doctor::{Check, Cure, Verdict, redis::ask};
use fence::{Holder, ResourceName};
use lock_client::{
    AcquireError, Locks, Terms, Ttl,
    redis::{Keys, lacks_permission},
};
use redis::{RedisResult, aio::ConnectionLike};
use tokio::time::timeout;

use crate::failure::with_causes;

const NAME: &str = "locking";
/// What is in danger if the test fails.
pub(super) const UNUSABLE: &str = "locks can't be used here, or for no longer than their ttl";
const TTL: Duration = Duration::from_secs(10);
/// How many names to try until one belongs to this node of a Redis Cluster.
const NAMES: usize = 1_000;
/// The commands of a client on a node of a Redlock cluster.
const NODE_COMMANDS: &str = "+eval +evalsha +ping +publish +subscribe +unsubscribe +get +set +incr +del \
                             +pexpire +pttl +info +hget +hmget +scan";

/// A random lock name, which no other client uses.
pub(super) fn unused_name() -> ResourceName {
    let name = format!("doctor-{}", Holder::random().as_str());
    name.parse().expect("the name has only letters, digits and a hyphen")
}

/// A random lock name whose keys are on this node of a Redis Cluster.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn unused_name_on(
    connection: &mut impl ConnectionLike,
) -> RedisResult<ResourceName> {
    let mut name = unused_name();
    for _ in 0..NAMES {
        let exists = redis::cmd("EXISTS").arg(Keys::new(&name).lock()).to_owned();
        match ask::<u64>(connection, &exists).await? {
            Err(rejection) if rejection.is_moved() => name = unused_name(),
            _ => break,
        }
    }
    Ok(name)
}

/// Acquires, renews and releases a lock, and removes its counter.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn locking(
    connection: &mut impl ConnectionLike,
    locks: &Locks,
    name: &ResourceName,
    user: &str,
) -> RedisResult<Check> {
    let ttl = Ttl::new(TTL).expect("10 s is a valid ttl");
    let used = use_lock(locks, name, Terms::new(ttl).no_wait().fair()).await;
    clean_up(connection, used, name, user, permissions(user)).await
}

/// Uses a lock of a Redlock cluster. Its counters are removed when each node is examined.
pub(super) async fn majority_locking(locks: &Locks, name: &ResourceName, ttl: Ttl) -> Check {
    let used = use_lock(locks, name, Terms::new(ttl).no_wait()).await;
    // A node that doesn't answer must not hold this up.
    let _ = timeout(TTL, locks.wait_for_background()).await;
    let done = "acquired, renewed and released a lock on a majority of the nodes";
    check(used, done, "resolve the checks of each node; then run this again")
}

/// The check that locks can be used. `done` says what succeeded.
pub(super) fn check(
    used: Result<(), String>,
    done: impl Into<String>,
    cure: impl Into<Cure>,
) -> Check {
    match used {
        Ok(()) => Check::ok(NAME, done),
        Err(problem) => Check::bad(Verdict::Unfit, NAME, problem, UNUSABLE, cure),
    }
}

/// Removes the keys of the test lock. Returns the check of the use of the lock and of this.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn clean_up(
    connection: &mut impl ConnectionLike,
    used: Result<(), String>,
    name: &ResourceName,
    user: &str,
    permissions: Cure,
) -> RedisResult<Check> {
    let keys = Keys::new(name);
    let all = [keys.lock(), keys.counter(), keys.queue(), keys.alive()];
    let removed = ask::<u64>(connection, redis::cmd("DEL").arg(&all)).await?;
    let problem = match (used, removed) {
        (Ok(()), Ok(_)) => {
            return Ok(Check::ok(
                NAME,
                format!("user {user} acquired, renewed and released a lock"),
            ));
        }
        (Err(problem), Ok(_)) => problem,
        (Ok(()), Err(rejection)) => {
            let left = keys.counter();
            return Ok(Check::bad(
                Verdict::Warning,
                NAME,
                format!(
                    "user {user} can use locks, but can't remove the test key {left}: {rejection}"
                ),
                "nothing but a few bytes of memory",
                Cure::new("remove it", [format!("DEL {left}")]),
            ));
        }
        (Err(problem), Err(rejection)) => {
            format!("{problem}; the test key {} could not be removed: {rejection}", keys.counter())
        }
    };
    let cure = if lacks_permission(&problem) {
        permissions
    } else {
        "resolve the error that Redis returned, and the other checks; then run this again".into()
    };
    Ok(check(Err(format!("user {user} {problem}")), "", cure))
}

/// Uses a lock as a program does.
pub(super) async fn use_lock(
    locks: &Locks,
    name: &ResourceName,
    terms: Terms,
) -> Result<(), String> {
    let terms = terms.without_renewal();
    let acquired = locks.acquire(name, terms).await;
    let lease =
        acquired.map_err(|error| format!("can't acquire a lock: {}", with_causes(&error)))?;
    let renewed = lease.renew().await;
    // Another client joins the queue and leaves it, and a third subscribes.
    let queued = locks.acquire(name, terms.no_wait()).await;
    let subscribed = locks.wakeups(name).await;
    let released = lease.release().await;
    renewed.map_err(|error| format!("can't renew a lease: {}", with_causes(&error)))?;
    released.map_err(|error| format!("can't release a lock: {}", with_causes(&error)))?;
    drop(subscribed.map_err(|error| format!("can't wait for a lock: {}", with_causes(&error)))?);
    match queued {
        Ok(_) | Err(AcquireError::Contended { .. }) => Ok(()),
        Err(error) => Err(format!("can't wait for a lock: {}", with_causes(&error))),
    }
}

pub(super) fn permissions(user: &str) -> Cure {
    allowed(
        user,
        "+eval +evalsha +ping +publish +subscribe +unsubscribe +exists +get +set +incr +del \
         +pexpire +pttl +time +zadd +zrem +zrange +zrank +zmscore +zcard +scan",
    )
}

/// The permissions that a user needs for locks on a node of a Redlock cluster.
pub(super) fn node_permissions(user: &str) -> Cure {
    allowed(user, NODE_COMMANDS)
}

fn allowed(user: &str, commands: &str) -> Cure {
    // To a user with all keys or channels, Redis rejects a pattern and all rules beside it: so each
    // rule is a command of its own.
    let rules = [commands, "~fenced:*", "&fenced:*"];
    Cure::new(
        "allow the user the commands of the lock scripts, on the keys and channels of locks (a user who has all \
         of them needs no pattern); ACL SAVE or CONFIG REWRITE makes it permanent",
        rules.map(|rule| format!("ACL SETUSER {user} {rule}")),
    )
}
