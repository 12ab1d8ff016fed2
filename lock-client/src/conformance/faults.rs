//! Requests that are dropped, and a service that is paused or stopped.

use std::time::Duration;

use fence::Holder;
use tokio::time::timeout;

use super::{
    Checked, Subject, disturbed,
    dropped::Dropped,
    ensure,
    try_lock::{acquire_free, acquire_when_free, long, new_name, release, until_answered},
};
use crate::{
    Order,
    backend::{Backend, BackendError, BackendFuture},
};

/// Each request is dropped at each of its awaits. To the service, this is a lost reply.
pub(super) async fn dropped_requests_leave_nothing_behind<S: Subject>(subject: &mut S) -> Checked {
    let (backend, other) = (subject.connect(), subject.connect());
    // 1. A dropped try is undone by a release without a token.
    let name = new_name("dropped");
    for polls in 1.. {
        let holder = Holder::random();
        let trying = backend.try_acquire(&name, &holder, long(), Order::Unordered);
        let tried = Dropped { future: trying, polls }.await;
        if !S::UNDOES_BY_ITSELF || tried.is_none() {
            until_answered(|| backend.release(&name, &holder, None)).await?;
        } else if let Some(Ok(crate::backend::Attempt::Granted { ownership, token, .. })) = &tried {
            let undo = || backend.release(&name, &ownership.holder, Some(*token));
            until_answered(undo).await?;
        }
        let held = acquire_when_free(&other, &name, long()).await?;
        release(&other, &name, &held).await?;
        if tried.is_some() {
            break;
        }
    }
    // 2. A dropped renewal, reissue and release may be repeated. The dropped one may still be under
    // way, and disturb the next.
    for polls in 1.. {
        let held = acquire_when_free(&backend, &name, long()).await?;
        let (own, token) = (&held.ownership, held.token);
        let renewal = Dropped { future: backend.renew(&name, own, long()), polls }.await;
        let renewed = until_answered(|| backend.renew(&name, own, long())).await?;
        ensure!(renewed == Some(token), "a renewal can't be repeated");
        let reissue = Dropped { future: backend.reissue(&name, own, token), polls }.await;
        let reissued = until_answered(|| backend.reissue(&name, own, token)).await?;
        ensure!(reissued > Some(token), "a reissue can't be repeated");
        let releasing = backend.release(&name, &own.holder, reissued);
        let dropped = Dropped { future: releasing, polls }.await;
        until_answered(|| backend.release(&name, &own.holder, reissued)).await?;
        if renewal.is_some() && reissue.is_some() && dropped.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// A request to a paused service may still be carried out. So its outcome is unknown.
pub(super) async fn paused_service_is_unavailable<S: Subject>(subject: &mut S) -> Checked {
    let (backend, name) = (subject.connect(), new_name("paused"));
    let (holder, kept) = (Holder::random(), new_name("kept"));
    let own = acquire_free(&backend, &kept, long()).await?;
    disturbed(subject.pause().await)?;
    let tried = backend.try_acquire(&name, &holder, long(), Order::Unordered);
    unavailable(&backend, tried).await?;
    unavailable(&backend, backend.renew(&kept, &own.ownership, long())).await?;
    disturbed(subject.resume().await)?;
    // The try may be carried out now. A release that is sent later undoes it.
    if !S::UNDOES_BY_ITSELF {
        until_answered(|| backend.release(&name, &holder, None)).await?;
    }
    acquire_when_free(&backend, &name, long()).await?;
    let renewed = until_answered(|| backend.renew(&kept, &own.ownership, long())).await?;
    ensure!(renewed == Some(own.token), "the lease became {renewed:?}");
    Ok(())
}

pub(super) async fn stopped_service_is_unavailable<S: Subject>(subject: &mut S) -> Checked {
    let (backend, name) = (subject.connect(), new_name("stopped"));
    let held = acquire_free(&backend, &name, long()).await?;
    release(&backend, &name, &held).await?;
    disturbed(subject.stop().await)?;
    let holder = Holder::random();
    let tried = backend.try_acquire(&name, &holder, long(), Order::Unordered);
    unavailable(&backend, tried).await?;
    let tried = subject.connect();
    let trying = tried.try_acquire(&name, &holder, long(), Order::Unordered);
    unavailable(&tried, trying).await?;
    disturbed(subject.start().await)?;
    // A proxy may have kept the tries, and carry them out now. Releases that are sent later undo them.
    if !S::UNDOES_BY_ITSELF {
        for client in [&backend, &tried] {
            until_answered(|| client.release(&name, &holder, None)).await?;
        }
    }
    acquire_when_free(&backend, &name, long()).await.map(drop)
}

/// Checks that a request ends in time, without an answer.
async fn unavailable<T: std::fmt::Debug>(
    backend: &impl Backend,
    request: BackendFuture<'_, T>,
) -> Checked {
    // A request may have to connect first, and to ask more than one server.
    let limit = backend.answer_timeout() * 10 + Duration::from_secs(1);
    match timeout(limit, request).await {
        Ok(Err(BackendError::Unavailable(_))) => Ok(()),
        Ok(answer) => Err(format!("the answer is {answer:?}").into()),
        Err(_) => Err(format!("a request takes longer than {limit:?}").into()),
    }
}
