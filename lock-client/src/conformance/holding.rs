//! Holding a lock: retries, renewal, reissue and release.

use std::time::Duration;

use fence::{Holder, ResourceName};
use tokio::time::sleep;

use super::{
    Checked, Subject, Violation,
    try_lock::{
        LONG, PATIENCE, acquire_free, acquire_when_free, failed, long, new_name, release, try_once,
    },
    violation,
};
use crate::{
    Moment, Order, Ttl,
    backend::{Backend, HeldLock, Ownership},
};

/// How much a service may round the time that it shows, or add to a ttl.
const INACCURACY: Duration = Duration::from_secs(5);

/// A ttl that no check outlasts either, and that differs from the long one.
fn shorter() -> Ttl {
    Ttl::new(LONG / 2).expect("it is a valid ttl")
}

/// A lease counts on the time that it asked for.
pub(super) async fn ttl_is_kept(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "a lock is granted for its ttl";
    let (backend, name) = (subject.connect(), new_name("kept"));
    let asked = Moment::now();
    acquire_free(PROMISE, &backend, &name, long()).await?;
    remains_for(PROMISE, &backend, &name, LONG, asked).await
}

/// A reply may have been lost, so a try may be repeated.
pub(super) async fn same_holder_gets_the_same_grant<S: Subject>(subject: &mut S) -> Checked {
    const PROMISE: &str = "a repeated try returns the same grant, and sets the full ttl";
    if S::UNDOES_BY_ITSELF {
        return Ok(());
    }
    let (backend, name, holder) = (subject.connect(), new_name("repeated"), Holder::random());
    let mut tokens = Vec::new();
    let asked = Moment::now();
    for ttl in [shorter(), long()] {
        let tried = try_once(&backend, &name, &holder, ttl, Order::Unordered).await;
        let held = tried.map_err(|error| failed(PROMISE, &error))?;
        let held = held.ok_or_else(|| violation(PROMISE, "the holder itself is rejected"))?;
        tokens.push((held.token, held.ownership));
    }
    if tokens[0] != tokens[1] {
        return Err(violation(PROMISE, format!("{:?}, then {:?}", tokens[0], tokens[1])));
    }
    remains_for(PROMISE, &backend, &name, LONG, asked).await
}

/// A renewal or reissue that was sent before the release may arrive after the next grant. The holder
/// is the same, so that only the grant distinguishes the two ownerships.
pub(super) async fn release_ends_the_ownership(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "an ownership ends with its release";
    let (backend, name, holder) = (subject.connect(), new_name("again"), Holder::random());
    let mut grants = Vec::new();
    for _ in 0..2 {
        let tried = try_once(&backend, &name, &holder, long(), Order::Unordered).await;
        let held = tried.map_err(|error| failed(PROMISE, &error))?;
        grants.push(held.ok_or_else(|| violation(PROMISE, "the lock is not free again"))?);
        if let [first] = &grants[..] {
            release(PROMISE, &backend, &name, first).await?;
        }
    }
    let (old, now) = (&grants[0], &grants[1]);
    if now.ownership == old.ownership || now.token <= old.token {
        return Err(violation(PROMISE, format!("{now:?} follows {old:?}")));
    }
    let renewed = backend.renew(&name, &old.ownership, long()).await;
    if let Some(token) = renewed.map_err(|error| failed(PROMISE, &error))? {
        return Err(violation(PROMISE, format!("the old one is renewed as {token}")));
    }
    let reissued = backend.reissue(&name, &old.ownership, now.token).await;
    if let Some(token) = reissued.map_err(|error| failed(PROMISE, &error))? {
        return Err(violation(PROMISE, format!("the old one is reissued as {token}")));
    }
    let renewed = backend.renew(&name, &now.ownership, long()).await;
    match renewed.map_err(|error| failed(PROMISE, &error))? {
        Some(token) if token == now.token => Ok(()),
        other => Err(violation(PROMISE, format!("{} became {other:?}", now.token))),
    }
}

pub(super) async fn renewal_sets_the_full_ttl(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "a renewal sets the full ttl, and returns the token";
    let (backend, name) = (subject.connect(), new_name("renewed"));
    let held = acquire_free(PROMISE, &backend, &name, shorter()).await?;
    let asked = Moment::now();
    let renewed = backend.renew(&name, &held.ownership, long()).await;
    let renewed = renewed.map_err(|error| failed(PROMISE, &error))?;
    if renewed != Some(held.token) {
        return Err(violation(PROMISE, format!("{:?} became {renewed:?}", held.token)));
    }
    remains_for(PROMISE, &backend, &name, LONG, asked).await?;
    let of_another = Ownership { holder: Holder::random(), ..held.ownership };
    let renewed = backend.renew(&name, &of_another, long()).await;
    match renewed.map_err(|error| failed(PROMISE, &error))? {
        None => Ok(()),
        Some(token) => Err(violation(PROMISE, format!("another holder got {token}"))),
    }
}

/// The holder of an expired lease may already have a successor.
pub(super) async fn expired_lease_is_not_renewed(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "an expired lease is not renewed";
    let (backend, name) = (subject.connect(), new_name("expired"));
    let expired = acquire_free(PROMISE, &backend, &name, subject.shortest_ttl()).await?;
    let begun = Moment::now();
    while held(PROMISE, &backend, &name).await?.is_some() {
        if begun.elapsed() > PATIENCE {
            return Err(violation(PROMISE, "the lock never expires"));
        }
        sleep(Duration::from_millis(10)).await;
    }
    let renewed = backend.renew(&name, &expired.ownership, long()).await;
    if let Some(token) = renewed.map_err(|error| failed(PROMISE, &error))? {
        return Err(violation(PROMISE, format!("{token} is renewed after the lock was free")));
    }
    let next = acquire_when_free(PROMISE, &backend, &name, long()).await?;
    let renewed = backend.renew(&name, &expired.ownership, long()).await;
    if let Some(token) = renewed.map_err(|error| failed(PROMISE, &error))? {
        return Err(violation(PROMISE, format!("{token}, although {} is held", next.token)));
    }
    let reissued = backend.reissue(&name, &expired.ownership, next.token).await;
    if let Some(token) = reissued.map_err(|error| failed(PROMISE, &error))? {
        return Err(violation(PROMISE, format!("it was even reissued as {token}")));
    }
    release(PROMISE, &backend, &name, &expired).await?;
    match held(PROMISE, &backend, &name).await? {
        Some(lock) if lock.token == next.token => Ok(()),
        other => Err(violation(PROMISE, format!("its release left {other:?}"))),
    }
}

pub(super) async fn reissue_returns_a_higher_token(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "a reissue returns a higher token, and later grants stay above it";
    let (backend, name) = (subject.connect(), new_name("reissued"));
    let held = acquire_free(PROMISE, &backend, &name, long()).await?;
    let far = held.token.as_u64() + 1_000;
    let far = fence::Token::new(far).expect("the suite's tokens are low");
    let mut last = held.token;
    for above in [held.token, far, held.token] {
        let reissued = backend.reissue(&name, &held.ownership, above).await;
        let token = reissued.map_err(|error| failed(PROMISE, &error))?;
        let token = token.ok_or_else(|| violation(PROMISE, "the lock does not belong to it"))?;
        if token <= above.max(last) {
            return Err(violation(PROMISE, format!("{token}, above {above} and {last}")));
        }
        last = token;
    }
    let renewed = backend.renew(&name, &held.ownership, long()).await;
    let renewed = renewed.map_err(|error| failed(PROMISE, &error))?;
    if renewed != Some(last) {
        return Err(violation(PROMISE, format!("renewed as {renewed:?} instead of {last}")));
    }
    let released = backend.release(&name, &held.ownership.holder, Some(last)).await;
    released.map_err(|error| failed(PROMISE, &error))?;
    let next = acquire_when_free(PROMISE, &backend, &name, long()).await?;
    match next.token > last {
        true => Ok(()),
        false => Err(violation(PROMISE, format!("{} follows {last}", next.token))),
    }
}

pub(super) async fn reissue_keeps_the_ttl(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "a reissue keeps the ttl";
    let (backend, name) = (subject.connect(), new_name("kept"));
    let asked = Moment::now();
    let held = acquire_free(PROMISE, &backend, &name, long()).await?;
    let reissued = backend.reissue(&name, &held.ownership, held.token).await;
    reissued.map_err(|error| failed(PROMISE, &error))?;
    remains_for(PROMISE, &backend, &name, LONG, asked).await
}

pub(super) async fn others_can_not_release(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "only the holder releases";
    let (backend, name) = (subject.connect(), new_name("released"));
    let held = acquire_free(PROMISE, &backend, &name, long()).await?;
    let mut other = held.clone();
    other.ownership.holder = Holder::random();
    if release(PROMISE, &backend, &name, &other).await? {
        return Err(violation(PROMISE, "another holder released it"));
    }
    match self::held(PROMISE, &backend, &name).await? {
        Some(lock) if lock.ownership.holder == held.ownership.holder => {}
        other => return Err(violation(PROMISE, format!("another's release left {other:?}"))),
    }
    if !release(PROMISE, &backend, &name, &held).await? {
        return Err(violation(PROMISE, "the holder could not"));
    }
    if release(PROMISE, &backend, &name, &held).await? {
        return Err(violation(PROMISE, "it released what an earlier release had released"));
    }
    acquire_when_free(PROMISE, &backend, &name, long()).await.map(drop)
}

/// Checks that the lock is held until this ttl ends, which a request has started since `asked`.
async fn remains_for(
    promise: &'static str,
    backend: &impl Backend,
    name: &ResourceName,
    ttl: Duration,
    asked: Moment,
) -> Checked {
    let lock = held(promise, backend, name).await?;
    let at_least = ttl.saturating_sub(asked.elapsed() + INACCURACY);
    match lock.as_ref().map(|lock| lock.remaining) {
        Some(Some(remaining)) if (at_least..=ttl + INACCURACY).contains(&remaining) => Ok(()),
        other => Err(violation(promise, format!("of {ttl:?}, the lock remains for {other:?}"))),
    }
}

async fn held(
    promise: &'static str,
    backend: &impl Backend,
    name: &ResourceName,
) -> Result<Option<HeldLock>, Violation> {
    let status = backend.status(name).await;
    Ok(status.map_err(|error| failed(promise, &error))?.held)
}
