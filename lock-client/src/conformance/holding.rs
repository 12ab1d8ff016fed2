//! Holding a lock: retries, renewal, reissue and release.

use std::time::Duration;

use fence::{Holder, ResourceName};
use tokio::time::sleep;

use super::{
    Checked, Subject, ensure,
    try_lock::{
        LONG, PATIENCE, acquire_free, acquire_when_free, long, new_name, release, try_once,
    },
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
    let (backend, name) = (subject.connect(), new_name("kept"));
    let asked = Moment::now();
    acquire_free(&backend, &name, long()).await?;
    remains_for(&backend, &name, LONG, asked).await
}

/// A reply may have been lost, so a try may be repeated.
pub(super) async fn same_holder_gets_the_same_grant<S: Subject>(subject: &mut S) -> Checked {
    if S::UNDOES_BY_ITSELF {
        return Ok(());
    }
    let (backend, name, holder) = (subject.connect(), new_name("repeated"), Holder::random());
    let mut tokens = Vec::new();
    let asked = Moment::now();
    for ttl in [shorter(), long()] {
        let tried = try_once(&backend, &name, &holder, ttl, Order::Unordered).await;
        let held = tried?.ok_or("the holder itself is rejected")?;
        tokens.push((held.token, held.ownership));
    }
    ensure!(tokens[0] == tokens[1], "{:?}, then {:?}", tokens[0], tokens[1]);
    remains_for(&backend, &name, LONG, asked).await
}

/// A renewal or reissue that was sent before the release may arrive after the next grant. The holder
/// is the same, so that only the grant distinguishes the two ownerships.
pub(super) async fn release_ends_the_ownership(subject: &mut impl Subject) -> Checked {
    let (backend, name, holder) = (subject.connect(), new_name("again"), Holder::random());
    let mut grants = Vec::new();
    for _ in 0..2 {
        let tried = try_once(&backend, &name, &holder, long(), Order::Unordered).await;
        grants.push(tried?.ok_or("the lock is not free again")?);
        if let [first] = &grants[..] {
            release(&backend, &name, first).await?;
        }
    }
    let (old, now) = (&grants[0], &grants[1]);
    ensure!(now.ownership != old.ownership && now.token > old.token, "{now:?} follows {old:?}");
    let renewed = backend.renew(&name, &old.ownership, long()).await?;
    ensure!(renewed.is_none(), "the old one is renewed as {renewed:?}");
    let reissued = backend.reissue(&name, &old.ownership, now.token).await?;
    ensure!(reissued.is_none(), "the old one is reissued as {reissued:?}");
    let renewed = backend.renew(&name, &now.ownership, long()).await?;
    ensure!(renewed == Some(now.token), "{} became {renewed:?}", now.token);
    Ok(())
}

pub(super) async fn renewal_sets_the_full_ttl(subject: &mut impl Subject) -> Checked {
    let (backend, name) = (subject.connect(), new_name("renewed"));
    let held = acquire_free(&backend, &name, shorter()).await?;
    let asked = Moment::now();
    let renewed = backend.renew(&name, &held.ownership, long()).await?;
    ensure!(renewed == Some(held.token), "{:?} became {renewed:?}", held.token);
    remains_for(&backend, &name, LONG, asked).await?;
    let of_another = Ownership { holder: Holder::random(), ..held.ownership };
    let renewed = backend.renew(&name, &of_another, long()).await?;
    ensure!(renewed.is_none(), "another holder got {renewed:?}");
    Ok(())
}

/// The holder of an expired lease may already have a successor.
pub(super) async fn expired_lease_is_not_renewed(subject: &mut impl Subject) -> Checked {
    let (backend, name) = (subject.connect(), new_name("expired"));
    let expired = acquire_free(&backend, &name, subject.shortest_ttl()).await?;
    let begun = Moment::now();
    while held(&backend, &name).await?.is_some() {
        ensure!(begun.elapsed() <= PATIENCE, "the lock never expires");
        sleep(Duration::from_millis(10)).await;
    }
    let renewed = backend.renew(&name, &expired.ownership, long()).await?;
    ensure!(renewed.is_none(), "{renewed:?} is renewed after the lock was free");
    let next = acquire_when_free(&backend, &name, long()).await?;
    let renewed = backend.renew(&name, &expired.ownership, long()).await?;
    ensure!(renewed.is_none(), "{renewed:?}, although {} is held", next.token);
    let reissued = backend.reissue(&name, &expired.ownership, next.token).await?;
    ensure!(reissued.is_none(), "it was even reissued as {reissued:?}");
    release(&backend, &name, &expired).await?;
    let left = held(&backend, &name).await?.map(|lock| lock.token);
    ensure!(left == Some(next.token), "its release left {left:?}");
    Ok(())
}

pub(super) async fn reissue_returns_a_higher_token(subject: &mut impl Subject) -> Checked {
    let (backend, name) = (subject.connect(), new_name("reissued"));
    let held = acquire_free(&backend, &name, long()).await?;
    let far = held.token.as_u64() + 1_000;
    let far = fence::Token::new(far).expect("the suite's tokens are low");
    let mut last = held.token;
    for above in [held.token, far, held.token] {
        let reissued = backend.reissue(&name, &held.ownership, above).await;
        let token = reissued?.ok_or("the lock does not belong to it")?;
        ensure!(token > above.max(last), "{token}, above {above} and {last}");
        last = token;
    }
    let renewed = backend.renew(&name, &held.ownership, long()).await?;
    ensure!(renewed == Some(last), "renewed as {renewed:?} instead of {last}");
    backend.release(&name, &held.ownership.holder, Some(last)).await?;
    let next = acquire_when_free(&backend, &name, long()).await?;
    ensure!(next.token > last, "{} follows {last}", next.token);
    Ok(())
}

pub(super) async fn reissue_keeps_the_ttl(subject: &mut impl Subject) -> Checked {
    let (backend, name) = (subject.connect(), new_name("kept"));
    let asked = Moment::now();
    let held = acquire_free(&backend, &name, long()).await?;
    backend.reissue(&name, &held.ownership, held.token).await?;
    remains_for(&backend, &name, LONG, asked).await
}

pub(super) async fn others_can_not_release(subject: &mut impl Subject) -> Checked {
    let (backend, name) = (subject.connect(), new_name("released"));
    let held = acquire_free(&backend, &name, long()).await?;
    let mut other = held.clone();
    other.ownership.holder = Holder::random();
    ensure!(!release(&backend, &name, &other).await?, "another holder released it");
    let left = self::held(&backend, &name).await?.map(|lock| lock.ownership.holder);
    ensure!(left.as_ref() == Some(&held.ownership.holder), "another's release left {left:?}");
    ensure!(release(&backend, &name, &held).await?, "the holder could not");
    ensure!(
        !release(&backend, &name, &held).await?,
        "it released what an earlier release had released"
    );
    acquire_when_free(&backend, &name, long()).await.map(drop)
}

/// Checks that the lock is held until this ttl ends, which a request has started since `asked`.
async fn remains_for(
    backend: &impl Backend,
    name: &ResourceName,
    ttl: Duration,
    asked: Moment,
) -> Checked {
    let remaining = held(backend, name).await?.and_then(|lock| lock.remaining);
    let lasting = ttl.saturating_sub(asked.elapsed() + INACCURACY)..=ttl + INACCURACY;
    let remains = remaining.is_some_and(|remaining| lasting.contains(&remaining));
    ensure!(remains, "of {ttl:?}, the lock remains for {remaining:?}");
    Ok(())
}

async fn held(backend: &impl Backend, name: &ResourceName) -> Checked<Option<HeldLock>> {
    let status = backend.status(name).await;
    Ok(status?.held)
}
