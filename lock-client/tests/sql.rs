//! What every lock service in an SQL database must do. Each check fails with an error, so that it can
//! be shown to fail on a broken service.

mod connections;
mod lost_tries;
mod names;
pub(crate) mod servers;
mod silence;
mod waiting;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use fence::{Holder, Token};
use lock_client::{
    Locks, Order,
    backend::{Attempt, Backend, BackendError, Contention, Ownership},
};
use testbed::wait::until_async;
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{sleep, timeout},
};

pub(crate) use self::{
    lost_tries::{
        late_try_is_released, release_does_not_overtake_a_lost_try,
        renewals_do_not_wait_behind_tries, waiter_of_a_free_lock,
    },
    names::{names_differ_byte_by_byte, names_of_no_lock_are_rejected},
    waiting::{
        dead_head_is_skipped, fair_waiters_keep_their_order, queue_is_not_overtaken,
        release_notifies_own_waiters, release_wakes_the_waiter,
    },
};
use crate::{
    lock_service::{ttl, with_causes},
    names::name,
};

const SOON: Duration = Duration::from_secs(30);

/// The token and the ownership of a grant. The ttl must be longer than an attempt may take: SQLite reports a
/// lease that ends before the attempt does as a lock that is held.
pub(crate) async fn granted(
    backend: &impl Backend,
    lock: &str,
    holder: &Holder,
    ttl_ms: u64,
) -> anyhow::Result<(Token, Ownership)> {
    // An answer may be late on a busy machine.
    let deadline = Instant::now() + SOON;
    loop {
        match backend.try_acquire(&name(lock), holder, ttl(ttl_ms), Order::Unordered).await {
            Ok(Attempt::Granted { token, ownership, .. }) => return Ok((token, ownership)),
            Ok(Attempt::Busy(contention)) => bail!("{lock} is held: {contention:?}"),
            Err(_) if Instant::now() < deadline => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Releases a lock. After a crash, a connection may be lost.
pub(crate) async fn released(
    backend: &impl Backend,
    lock: &str,
    holder: &Holder,
    token: Token,
) -> anyhow::Result<()> {
    let release = async || Ok(backend.release(&name(lock), holder, Some(token)).await.is_ok());
    until_async(SOON, release).await
}

pub(crate) async fn busy(
    backend: &impl Backend,
    lock: &str,
    holder: &Holder,
    order: Order,
) -> anyhow::Result<Contention> {
    match backend.try_acquire(&name(lock), holder, ttl(60_000), order).await? {
        Attempt::Busy(contention) => Ok(contention),
        Attempt::Granted { token, .. } => bail!("{lock} was granted with {token}"),
    }
}

async fn until_expired(backend: &impl Backend, lock: &str) -> anyhow::Result<()> {
    let status = async || backend.status(&name(lock)).await;
    let expired = async || Ok(status().await.is_ok_and(|status| status.held.is_none()));
    until_async(SOON, expired).await
}

pub(crate) async fn tokens_grow(backend: &impl Backend) -> anyhow::Result<()> {
    let mut last = None;
    for round in 0..6 {
        let is_released = round % 2 == 0;
        let (holder, ttl_ms) = (Holder::random(), if is_released { 60_000 } else { 1_000 });
        let (token, ownership) = granted(backend, "tokens", &holder, ttl_ms).await?;
        ensure!(last < Some(token), "{token} follows {last:?}");
        ensure!(ownership == Ownership { holder: holder.clone(), grant: token });
        last = Some(token);
        if is_released {
            backend.release(&name("tokens"), &holder, Some(token)).await?;
        } else {
            until_expired(backend, "tokens").await?;
        }
    }
    let status = backend.status(&name("tokens")).await?;
    ensure!(status.last_token == last.map(Token::as_u64), "{status:?}");
    Ok(())
}

/// The control of a broken backend.
pub(crate) async fn tokens_do_not_grow(backend: &impl Backend) {
    let error = tokens_grow(backend).await.unwrap_err();
    assert!(error.to_string().contains("follows"), "{error:?}");
}

pub(crate) async fn same_holder_has_its_grant_again(backend: &impl Backend) -> anyhow::Result<()> {
    let holder = Holder::random();
    let first = granted(backend, "same", &holder, 30_000).await?;
    let waits = Holder::random();
    busy(backend, "same", &waits, Order::Fair).await?;
    let second = granted(backend, "same", &holder, 600_000).await?;
    ensure!(first == second, "{first:?} and {second:?}");
    let status = backend.status(&name("same")).await?;
    let held = status.held.context("it is held")?;
    ensure!(held.remaining > Some(Duration::from_secs(300)), "the full ttl: {held:?}");
    ensure!((held.ownership, held.token) == (first.1, first.0) && status.queued == 1);
    ensure!(held.since_ms.is_some() && held.label.is_empty());
    Ok(())
}

pub(crate) async fn one_of_many_holds(backend: &(impl Backend + Clone)) -> anyhow::Result<()> {
    let (held, tokens) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (locks, held, tokens) = (Locks::new(backend.clone()), held.clone(), tokens.clone());
        tasks.spawn(async move {
            for _ in 0..5 {
                let lease = locks.acquire(&name("many"), ttl(60_000)).await?;
                ensure!(!held.swap(true, Ordering::SeqCst), "two hold the lock");
                tokens.lock().await.push(lease.token()?);
                sleep(Duration::from_millis(1)).await;
                held.store(false, Ordering::SeqCst);
                lease.release().await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = timeout(SOON * 2, tasks.join_next()).await? {
        ended??;
    }
    let tokens = tokens.lock().await;
    ensure!(tokens.len() == 100 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}

pub(crate) async fn expired_lock_is_not_renewed(backend: &impl Backend) -> anyhow::Result<()> {
    let (lock, holder) = (name("expired"), Holder::random());
    let (token, ownership) = granted(backend, "expired", &holder, 60_000).await?;
    ensure!(backend.renew(&lock, &ownership, ttl(300)).await? == Some(token));
    let other = Ownership { holder: Holder::random(), ..ownership.clone() };
    let earlier = Ownership { grant: Token::new(1)?, ..ownership.clone() };
    for wrong in [&other, &earlier] {
        ensure!(backend.renew(&lock, wrong, ttl(300)).await?.is_none());
        ensure!(backend.reissue(&lock, wrong, token).await?.is_none());
    }
    until_expired(backend, "expired").await?;
    ensure!(backend.renew(&lock, &ownership, ttl(60_000)).await?.is_none(), "renewed");
    ensure!(backend.reissue(&lock, &ownership, token).await?.is_none(), "reissued");
    ensure!(!backend.release(&lock, &holder, Some(token)).await?, "released");
    Ok(())
}

pub(crate) async fn reissued_token_is_above_both(backend: &impl Backend) -> anyhow::Result<()> {
    let (lock, holder) = (name("reissued"), Holder::random());
    let (token, ownership) = granted(backend, "reissued", &holder, 60_000).await?;
    let above = Token::new(token.as_u64() + 1_000)?;
    let higher = backend.reissue(&lock, &ownership, above).await?.context("it is held")?;
    ensure!(higher > above);
    let again = backend.reissue(&lock, &ownership, token).await?.context("it is held")?;
    ensure!(again > higher, "{again} is above the present token, too");
    ensure!(backend.renew(&lock, &ownership, ttl(60_000)).await? == Some(again));
    ensure!(granted(backend, "reissued", &holder, 60_000).await? == (again, ownership.clone()));
    backend.release(&lock, &holder, Some(again)).await?;
    ensure!(granted(backend, "reissued", &Holder::random(), 60_000).await?.0 > again);
    // There is no token above the highest.
    let highest = Token::new(999_999_999_999_999)?;
    ensure!(backend.reissue(&lock, &ownership, highest).await?.is_none(), "not its lock");
    Ok(())
}

/// The statements were committed, and only their answer can't be read: its token is 0. A mere read
/// changes nothing, and is rejected.
pub(crate) async fn unreadable_answer_leaves_the_outcome_unknown(
    backend: &impl Backend,
    set_token_to_0: impl AsyncFnOnce(),
) -> anyhow::Result<()> {
    let (lock, holder) = (name("unreadable"), Holder::random());
    let (_, ownership) = granted(backend, "unreadable", &holder, 60_000).await?;
    set_token_to_0().await;
    let tried = backend.try_acquire(&lock, &holder, ttl(60_000), Order::Unordered).await;
    let renewed = backend.renew(&lock, &ownership, ttl(60_000)).await;
    for error in [tried.err(), renewed.err()] {
        let error = error.context("the answer has no token")?;
        ensure!(with_causes(&error).contains("a token is"), "{error:?}");
        ensure!(matches!(error, BackendError::Unavailable(_)), "it was carried out: {error:?}");
    }
    let read = backend.status(&lock).await;
    ensure!(matches!(read, Err(BackendError::Rejected(_))), "{read:?}");
    Ok(())
}

/// A server that takes no writes, such as a standby, may lack a lock that is held. It can't say that a
/// lock is lost, or was not held.
pub(crate) async fn server_without_writes_answers_nothing(
    backend: &impl Backend,
) -> anyhow::Result<()> {
    let (lock, holder) = (name("r"), Holder::random());
    let ownership = Ownership { holder: holder.clone(), grant: Token::new(7)? };
    let answers = [
        backend.try_acquire(&lock, &holder, ttl(60_000), Order::Fair).await.map(drop),
        backend.renew(&lock, &ownership, ttl(60_000)).await.map(drop),
        backend.reissue(&lock, &ownership, ownership.grant).await.map(drop),
        backend.release(&lock, &holder, Some(ownership.grant)).await.map(drop),
        backend.release(&lock, &holder, None).await.map(drop),
    ];
    for (request, answer) in answers.into_iter().enumerate() {
        let error = answer.err().with_context(|| format!("request {request} was answered"))?;
        ensure!(matches!(error, BackendError::Unavailable(_)), "{error:?}");
        ensure!(with_causes(&error).contains("it takes no writes"), "{error:?}");
    }
    Ok(())
}

pub(crate) async fn lock_of_another_is_not_released(backend: &impl Backend) -> anyhow::Result<()> {
    let (lock, holder) = (name("foreign"), Holder::random());
    let (token, _) = granted(backend, "foreign", &holder, 60_000).await?;
    ensure!(!backend.release(&lock, &Holder::random(), None).await?);
    busy(backend, "foreign", &Holder::random(), Order::Unordered).await?;
    ensure!(backend.release(&lock, &holder, Some(token)).await?);
    ensure!(!backend.release(&lock, &holder, Some(token)).await?, "it was released before");
    Ok(())
}
