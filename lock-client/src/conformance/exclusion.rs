//! One holder at a time, and tokens that grow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use futures_util::future::join_all;
use tokio::{runtime::Handle, task::spawn_blocking, time::sleep};

use super::{
    Checked, Failure, Subject, disturbed, ensure,
    try_lock::{PATIENCE, acquire_free, acquire_when_free, long, new_name, release},
};
use crate::{
    Moment, Order,
    backend::{Attempt, Backend, BackendError},
};

const CLIENTS: usize = 8;
const ROUNDS: usize = 10;
/// How long a client holds the lock.
const HOLD_MS: [u64; 4] = [5, 10, 15, 20];

/// Several clients race for a lock, again and again, each on a thread of its own. They hold it for long
/// enough that another one, which saw it free, takes it meanwhile.
pub(super) async fn one_holder_at_a_time(subject: &mut impl Subject) -> Checked {
    let (name, taken) = (new_name("race"), Arc::new(AtomicBool::new(false)));
    let race = (0..CLIENTS).map(|client| {
        let (backend, name, taken) = (subject.connect(), name.clone(), taken.clone());
        let racing = async move {
            let mut tokens = Vec::new();
            for round in 0..ROUNDS {
                let held = acquire_when_free(&backend, &name, long()).await?;
                ensure!(!taken.swap(true, Ordering::SeqCst), "two clients hold the lock");
                tokens.push(held.token);
                sleep(Duration::from_millis(HOLD_MS[(client + round) % HOLD_MS.len()])).await;
                taken.store(false, Ordering::SeqCst);
                release(&backend, &name, &held).await?;
            }
            Ok::<_, Failure>(tokens)
        };
        let runtime = Handle::current();
        spawn_blocking(move || runtime.block_on(racing))
    });
    let raced = join_all(race).await.into_iter().map(|raced| raced.expect("no client panics"));
    let tokens = raced.collect::<Result<Vec<_>, _>>()?;
    let mut tokens = tokens.concat();
    let issued = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    ensure!(tokens.len() == issued, "two holders got one token");
    Ok(())
}

/// Over release, expiry, and a restart of the service.
pub(super) async fn tokens_grow(subject: &mut impl Subject) -> Checked {
    let (name, ttl) = (new_name("tokens"), subject.shortest_ttl());
    let backend = subject.connect();
    let mut last = None;
    for _ in 0..3 {
        let held = acquire_free(&backend, &name, long()).await?;
        grows(&mut last, held.token, "after a release")?;
        release(&backend, &name, &held).await?;
    }
    let held = acquire_free(&backend, &name, ttl).await?;
    grows(&mut last, held.token, "after a release")?;
    let held = acquire_when_free(&backend, &name, long()).await?;
    grows(&mut last, held.token, "after an expiry")?;
    release(&backend, &name, &held).await?;
    disturbed(subject.stop().await)?;
    disturbed(subject.start().await)?;
    let held = acquire_when_free(&subject.connect(), &name, long()).await?;
    grows(&mut last, held.token, "after a restart")
}

fn grows(last: &mut Option<Token>, token: Token, when: &str) -> Checked {
    let before = last.replace(token);
    ensure!(before < Some(token), "{when}, {token} follows {before:?}");
    Ok(())
}

/// Names that a collation, a pattern, a trim or a path might confuse are locked at once.
pub(super) async fn names_differ_byte_for_byte(subject: &mut impl Subject) -> Checked {
    let longest = "x".repeat(ResourceName::MAX_BYTES);
    let nearly = format!("{}y", "x".repeat(ResourceName::MAX_BYTES - 1));
    let widest = "🐢".repeat(ResourceName::MAX_BYTES / 4);
    let names = [
        "a", "A", "a ", " a", "ａ", "á", "a\u{301}", "ss", "ß", "i", "İ", "a/b", "a%2Fb", "a%2fb",
        "a_b", "a%b", "a*b", "a'b", "a\"b", "a\\b", "a{b", "a}b", "{a}", "a;--", "$1", "?", "...",
        "null", "1", "01", "1.0", "żółw", "🐢", &longest, &nearly, &widest,
    ];
    let backend = subject.connect();
    let mut locks = Vec::new();
    for name in names {
        let name: ResourceName = name.parse().expect("the suite's names are valid");
        let held = acquire_free(&backend, &name, long()).await?;
        locks.push((name, held));
    }
    for (name, held) in &locks {
        ensure!(release(&backend, name, held).await?, "the lock `{name}` was not held");
    }
    Ok(())
}

/// A lease whose deadline counts from a later moment outlives its lock.
pub(super) async fn deadline_counts_from_before_the_request(subject: &mut impl Subject) -> Checked {
    let backend = subject.connect();
    // The first request connects.
    backend.status(&new_name("asked")).await?;
    let begun = Moment::now();
    loop {
        disturbed(subject.pause().await)?;
        let (name, holder) = (new_name("asked"), Holder::random());
        let trying = backend.try_acquire(&name, &holder, long(), Order::Unordered);
        let resuming = async {
            // The try is sent by now, because it was polled first.
            tokio::time::sleep(backend.answer_timeout() / 4).await;
            let before = Moment::now();
            (before, subject.resume().await)
        };
        let (tried, (resumed, outcome)) = tokio::join!(biased; trying, resuming);
        disturbed(outcome)?;
        match tried {
            Ok(Attempt::Granted { asked, .. }) if asked < resumed => return Ok(()),
            Ok(Attempt::Granted { .. }) => {
                return Err("the request was sent earlier than it says".into());
            }
            Ok(Attempt::Busy(_)) => return Err("the lock is not free".into()),
            // A slow answer proves nothing.
            Err(BackendError::Unavailable(_)) if begun.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.into()),
        }
    }
}
