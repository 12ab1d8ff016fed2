//! What every lock service in an SQL database must do. Each check fails with an error, so that it can
//! be shown to fail on a broken service.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use fence::{Holder, Token};
use lock_client::{
    Locks, Order, Terms,
    backend::{Attempt, Backend, Contention, Ownership},
};
use testbed::wait::until_async;
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    lock_service::{ttl, unrenewed},
    names::name,
};

const SOON: Duration = Duration::from_secs(30);

/// The token and the ownership of a grant.
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
    let expired = async || Ok(backend.status(&name(lock)).await?.held.is_none());
    until_async(SOON, expired).await
}

pub(crate) async fn tokens_grow(backend: &impl Backend) -> anyhow::Result<()> {
    let mut last = None;
    for round in 0..6 {
        let holder = Holder::random();
        let (token, ownership) = granted(backend, "tokens", &holder, 100).await?;
        ensure!(ownership == Ownership { holder: holder.clone(), grant: token });
        ensure!(last < Some(token), "{token} follows {last:?}");
        last = Some(token);
        if round % 2 == 0 {
            backend.release(&name("tokens"), &holder, Some(token)).await?;
        } else {
            until_expired(backend, "tokens").await?;
        }
    }
    let status = backend.status(&name("tokens")).await?;
    ensure!(status.last_token == last.map(Token::as_u64), "{status:?}");
    Ok(())
}

pub(crate) async fn same_holder_has_its_grant_again(backend: &impl Backend) -> anyhow::Result<()> {
    let holder = Holder::random();
    let first = granted(backend, "same", &holder, 2_000).await?;
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
    let (token, ownership) = granted(backend, "expired", &holder, 600).await?;
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

pub(crate) async fn lock_of_another_is_not_released(backend: &impl Backend) -> anyhow::Result<()> {
    let (lock, holder) = (name("foreign"), Holder::random());
    let (token, _) = granted(backend, "foreign", &holder, 60_000).await?;
    ensure!(!backend.release(&lock, &Holder::random(), None).await?);
    busy(backend, "foreign", &Holder::random(), Order::Unordered).await?;
    ensure!(backend.release(&lock, &holder, Some(token)).await?);
    ensure!(!backend.release(&lock, &holder, Some(token)).await?, "it was released before");
    Ok(())
}

/// Two clients pass a lock to each other. A waiter whose wake-up is lost tries by itself much later.
pub(crate) async fn release_wakes_the_waiter(
    open: impl Fn() -> anyhow::Result<Locks>,
    rounds: usize,
    most: Duration,
) -> anyhow::Result<()> {
    let (mut holder, mut waiter) = (open()?, open()?);
    let mut lease = holder.acquire(&name("passed"), unrenewed(600_000)).await?;
    for round in 0..rounds {
        let (terms, lock) = (Terms::new(ttl(600_000)).without_renewal(), name("passed"));
        let mut acquiring = Box::pin(waiter.acquire(&lock, terms));
        // Released at any moment of the acquire: before it tries, subscribes, or waits.
        let early = Duration::from_micros(rand::random_range(0..10_000));
        ensure!(timeout(early, &mut acquiring).await.is_err(), "the lock is held");
        lease.release().await?;
        lease = timeout(most, acquiring).await.with_context(|| format!("round {round}"))??;
        std::mem::swap(&mut holder, &mut waiter);
    }
    lease.release().await?;
    Ok(())
}

pub(crate) async fn fair_waiters_keep_their_order(
    backend: &(impl Backend + Clone),
) -> anyhow::Result<()> {
    let locks = Locks::new(backend.clone());
    let lease = locks.acquire(&name("fair"), ttl(600_000)).await?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..6 {
        let (locks, order) = (Locks::new(backend.clone()), order.clone());
        waiters.spawn(async move {
            let lease = locks.acquire(&name("fair"), Terms::new(ttl(60_000)).fair()).await?;
            order.lock().await.push(number);
            lease.release().await?;
            anyhow::Ok(())
        });
        let queued = async || Ok(backend.status(&name("fair")).await?.queued == number + 1);
        until_async(SOON, queued).await?;
    }
    // One that is not in the queue does not overtake it.
    lease.release().await?;
    while let Some(ended) = timeout(SOON, waiters.join_next()).await? {
        ended??;
    }
    let order = order.lock().await.clone();
    ensure!(order == [0, 1, 2, 3, 4, 5], "{order:?}");
    Ok(())
}

pub(crate) async fn queue_is_not_overtaken(backend: &impl Backend) -> anyhow::Result<()> {
    let (holder, first, second) = (Holder::random(), Holder::random(), Holder::random());
    granted(backend, "overtaken", &holder, 60_000).await?;
    let contention = busy(backend, "overtaken", &first, Order::Fair).await?;
    ensure!(contention.ahead == Some(0) && contention.nap <= Some(Duration::from_secs(1)));
    let contention = busy(backend, "overtaken", &second, Order::Fair).await?;
    ensure!(contention.ahead == Some(1));
    backend.release(&name("overtaken"), &holder, None).await?;
    busy(backend, "overtaken", &Holder::random(), Order::Unordered).await?;
    busy(backend, "overtaken", &second, Order::Fair).await?;
    granted(backend, "overtaken", &first, 60_000).await?;
    Ok(())
}

/// A waiter that has crashed keeps the others out for 3 seconds, and not for longer.
pub(crate) async fn dead_head_is_skipped(backend: &(impl Backend + Clone)) -> anyhow::Result<()> {
    let (holder, dead) = (Holder::random(), Holder::random());
    granted(backend, "dead", &holder, 600_000).await?;
    busy(backend, "dead", &dead, Order::Fair).await?;
    let died = Instant::now();
    let locks = Locks::new(backend.clone());
    let (lock, terms) = (name("dead"), Terms::new(ttl(60_000)).fair());
    let mut waiting = Box::pin(locks.acquire(&lock, terms));
    let queued = until_async(SOON, async || Ok(backend.status(&name("dead")).await?.queued == 2));
    let mut queued = Box::pin(queued);
    poll_fn(|context| {
        assert!(waiting.as_mut().poll(context).is_pending(), "the lock is held");
        match queued.as_mut().poll(context) {
            Poll::Ready(queued) => Poll::Ready(queued),
            Poll::Pending => Poll::Pending,
        }
    })
    .await?;
    backend.release(&lock, &holder, None).await?;
    let lease =
        timeout(Duration::from_secs(6), waiting).await.context("it waits for the dead")??;
    ensure!(died.elapsed() > Duration::from_millis(2_900), "it was skipped while it lived");
    lease.release().await?;
    Ok(())
}

/// A try and its release time out while the service is paused. The service carries out the try after
/// all: then the release follows it, although nobody waits for it any more.
pub(crate) async fn late_try_is_released(
    backend: impl Backend + Clone,
    pause: impl AsyncFnOnce() -> anyhow::Result<()>,
    resume: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (lock, holder) = (name("late"), Holder::random());
    // All connections are made, whichever one the try takes.
    for _ in 0..50 {
        backend.release(&lock, &Holder::random(), None).await?;
    }
    let last = backend.status(&lock).await?.last_token;
    pause().await?;
    let tried = backend.try_acquire(&lock, &holder, ttl(600_000), Order::Unordered).await;
    ensure!(tried.is_err(), "{tried:?}");
    let released = backend.release(&lock, &holder, None).await;
    ensure!(released.is_err(), "{released:?}");
    let observer = backend.clone();
    drop(backend);
    resume()?;
    let is_over = async || {
        let status = observer.status(&lock).await;
        Ok(status.is_ok_and(|status| status.last_token > last && status.held.is_none()))
    };
    until_async(SOON, is_over).await.context("it is not released")
}

/// A try waits for the row of the free lock `overtaken`, which somebody else keeps locked until
/// `unlock`. Its connection is lost, and the service does not notice that. The release that is sent at
/// once follows the try all the same.
pub(crate) async fn release_does_not_overtake_a_lost_try(
    backend: impl Backend + Clone,
    is_waiting: impl AsyncFn() -> anyhow::Result<bool>,
    lose_connections: impl FnOnce(),
    unlock: impl AsyncFnOnce() -> anyhow::Result<()>,
    observer: &impl Backend,
) -> anyhow::Result<()> {
    let (lock, holder) = (name("overtaken"), Holder::random());
    let last = observer.status(&lock).await?.last_token;
    // 1. The connection is lost while the try waits in the service.
    let trying = tokio::spawn({
        let (backend, lock, holder) = (backend.clone(), lock.clone(), holder.clone());
        async move { backend.try_acquire(&lock, &holder, ttl(600_000), Order::Unordered).await }
    });
    until_async(SOON, async || is_waiting().await)
        .await
        .context("the try does not wait for the row")?;
    lose_connections();
    let tried = trying.await?;
    ensure!(tried.is_err(), "{tried:?}");
    // 2. The caller gives up. If the release finds nothing, it ends before the row is unlocked.
    let patience = backend.answer_timeout() / 4;
    let mut releasing = Box::pin(backend.release(&lock, &holder, None));
    let ended = timeout(patience, &mut releasing).await;
    ensure!(!matches!(ended, Ok(Ok(_))), "it has overtaken the try: {ended:?}");
    unlock().await?;
    drop(releasing);
    // 3. The try is granted, and undone.
    let is_over = async || {
        let status = observer.status(&lock).await;
        Ok(status.is_ok_and(|status| status.last_token > last && status.held.is_none()))
    };
    until_async(SOON, is_over).await.context("it is not released")
}

/// Somebody else keeps the row of the free lock `blocked` locked, so that tries wait for it. Other
/// locks are renewed meanwhile.
pub(crate) async fn renewals_do_not_wait_behind_tries(
    backend: &(impl Backend + Clone),
) -> anyhow::Result<()> {
    let (token, ownership) = granted(backend, "renewed", &Holder::random(), 600_000).await?;
    let mut tries = JoinSet::new();
    for _ in 0..12 {
        let backend = backend.clone();
        tries.spawn(async move {
            let (lock, holder) = (name("blocked"), Holder::random());
            let _ = backend.try_acquire(&lock, &holder, ttl(10), Order::Unordered).await;
        });
    }
    // Each try waits for its answer time-out.
    sleep(backend.answer_timeout() / 4).await;
    let renewed = backend.renew(&name("renewed"), &ownership, ttl(600_000)).await?;
    ensure!(renewed == Some(token));
    let above = backend.reissue(&name("renewed"), &ownership, token).await?;
    ensure!(above > Some(token));
    let status = backend.status(&name("renewed")).await?;
    ensure!(status.held.is_some());
    ensure!(tries.try_join_next().is_none(), "the tries wait all the time");
    tries.join_all().await;
    Ok(())
}

pub(crate) async fn names_differ_byte_by_byte(backend: &impl Backend) -> anyhow::Result<()> {
    let longest = "a".repeat(511);
    let (almost, umlauts) = (format!("{longest}b"), "\u{e4}".repeat(256));
    let longest = format!("{longest}a");
    let names = [
        "a",
        "A",
        "a ",
        "stra\u{df}e",
        "strasse",
        "\u{e9}",
        "e\u{301}",
        "a'\\\"%s",
        "ä",
        "a/b",
        "a.b",
        "a%b",
        "a_b",
        "a%2Fb",
        "%",
        "_",
        "\u{1f512}",
        &longest,
        &almost,
        &umlauts,
    ];
    for (number, lock) in names.into_iter().enumerate() {
        granted(backend, lock, &Holder::random(), 600_000)
            .await
            .with_context(|| format!("name {number}"))?;
        busy(backend, lock, &Holder::random(), Order::Unordered).await?;
    }
    Ok(())
}

/// A client notifies its own waiters, also if its database notifies nobody.
pub(crate) async fn release_notifies_own_waiters(backend: &impl Backend) -> anyhow::Result<()> {
    let lock = name("own");
    for order in [Order::Unordered, Order::Fair] {
        let [holder, waiter] = [Holder::random(), Holder::random()];
        let (token, _) = granted(backend, "own", &holder, 60_000).await?;
        busy(backend, "own", &waiter, order).await?;
        let wakeups = backend.subscribe(&lock, &waiter, order).await?;
        backend.release(&lock, &holder, Some(token)).await?;
        // Nothing is waited for, so that a poll hardly comes before this.
        let mut next = pin!(wakeups.next());
        let is_notified = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_ready()));
        ensure!(is_notified.await, "{order:?}: the waiter was not notified");
        backend.release(&lock, &waiter, None).await?;
    }
    Ok(())
}
