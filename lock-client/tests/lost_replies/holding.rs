//! The requests of a holder: acquire, renew, reissue, release.

use super::*;

with_every_fault! {
    acquire_is_granted_once,
    acquire_of_a_lock_that_another_holds_is_contended,
    renewal_that_was_not_answered_is_repeated,
    lease_that_renews_itself_is_kept,
    reissue_that_was_not_answered_is_repeated,
    lock_is_adopted_from_another_process,
    release_frees_the_lock,
    dropped_lease_frees_the_lock,
    status_is_returned,
}

async fn acquire_is_granted_once(fault: Fault) {
    let mut service = Service::start().await;
    let far = service.far.clone();
    let lease = service.during(fault, far.acquire(&name("r"), lasting())).await.unwrap();
    assert_eq!(lease.token(), Ok(token(33)));
    let held = service.near.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!((held.token, &held.ownership.holder), (token(33), lease.holder()));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(33).await;
}

async fn acquire_of_a_lock_that_another_holds_is_contended(fault: Fault) {
    let mut service = Service::start().await;
    let other = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let far = service.far.clone();
    let busy = service.during(fault, far.acquire(&name("r"), lasting())).await;
    assert!(matches!(busy, Err(AcquireError::Contended { remaining: Some(_), .. })), "{busy:?}");
    assert_eq!(other.release().await.unwrap(), Released::Released, "its holder keeps it");
    service.assert_nothing_is_left(33).await;
}

async fn renewal_that_was_not_answered_is_repeated(fault: Fault) {
    let mut service = Service::start().await;
    let lease = service.far.acquire(&name("r"), lasting()).await.unwrap();
    let before = lease.remaining();
    let renewed = service.during(fault, lease.renew()).await;
    assert!(matches!(renewed, Err(RenewError::LockService { .. })), "{renewed:?}");
    assert_eq!(lease.token(), Ok(token(33)), "it is not lost");
    assert!(lease.remaining() < before, "the deadline is not extended without an answer");
    let full = Ttl::from_secs(600).unwrap().reliable();
    let a_part_has_passed = || Ok(lease.remaining() < full - Duration::from_millis(200));
    until(PATIENCE, a_part_has_passed).await.unwrap();
    let before = lease.remaining();
    lease.renew().await.unwrap();
    assert!(lease.remaining() > before);
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(33).await;
}

async fn lease_that_renews_itself_is_kept(fault: Fault) {
    let mut service = Service::start().await;
    let ttl = Ttl::from_secs(4).unwrap();
    let lease = service.far.acquire(&name("r"), ttl).await.unwrap();
    let is_renewed = async {
        let mut before = lease.remaining();
        let rises = || {
            let remaining = lease.remaining();
            Ok(remaining > std::mem::replace(&mut before, remaining))
        };
        until(PATIENCE, rises).await
    };
    service.during(fault, is_renewed).await.expect("it was renewed");
    assert_eq!(lease.token(), Ok(token(33)));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(33).await;
}

async fn reissue_that_was_not_answered_is_repeated(fault: Fault) {
    let mut service = Service::start().await;
    let lease = service.far.acquire(&name("r"), lasting()).await.unwrap();
    let reissued = service.during(fault, lease.reissue(token(40))).await;
    assert!(matches!(reissued, Err(RenewError::LockService { .. })), "{reissued:?}");
    assert_eq!(lease.token(), Ok(token(33)), "a reissue without an answer changes no token");
    // The next renewal returns the token that the reissue left.
    lease.renew().await.unwrap();
    let renewed_token = if fault == Fault::LostRequest { 33 } else { 41 };
    assert_eq!(lease.token(), Ok(token(renewed_token)));
    assert_eq!(lease.reissue(token(40)).await.unwrap(), token(41));
    let held = service.near.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!((held.token, held.ownership.grant), (token(41), token(33)));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(41).await;
}

async fn lock_is_adopted_from_another_process(fault: Fault) {
    let mut service = Service::start().await;
    let detached = service.near.acquire(&name("r"), lasting()).await.unwrap().detach().unwrap();
    let far = service.far.clone();
    let lease = service.during(fault, far.adopt(detached, lasting())).await.unwrap();
    assert_eq!(lease.token(), Ok(token(33)));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(33).await;
}

async fn release_frees_the_lock(fault: Fault) {
    let mut service = Service::start().await;
    let lease = service.far.acquire(&name("r"), lasting()).await.unwrap();
    let released = service.during(fault, lease.release()).await.unwrap();
    // If the first request has released it, the second one finds it free.
    let expected = match fault {
        Fault::LostRequest => Released::Released,
        Fault::LostReply | Fault::Hang => Released::NotHeld,
    };
    assert_eq!(released, expected);
    service.assert_nothing_is_left(33).await;
    let next = service.near.acquire(&name("r"), lasting()).await.unwrap();
    assert_eq!(next.token(), Ok(token(34)));
}

async fn dropped_lease_frees_the_lock(fault: Fault) {
    let mut service = Service::start().await;
    let lease = service.far.acquire(&name("r"), lasting()).await.unwrap();
    let near = service.near.clone();
    let is_free = async {
        drop(lease);
        // A Redis that hangs answers no status.
        let is_free = async || Ok(near.status(&name("r")).await.is_ok_and(|it| it.held.is_none()));
        until_async(PATIENCE, is_free).await
    };
    service.during(fault, is_free).await.unwrap();
    service.assert_nothing_is_left(33).await;
}

async fn status_is_returned(fault: Fault) {
    let mut service = Service::start().await;
    let lease = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let far = service.far.clone();
    let status = service.during(fault, far.status(&name("r"))).await.unwrap();
    assert_eq!(status.held.unwrap().token, token(33));
    lease.release().await.unwrap();
    service.assert_nothing_is_left(33).await;
}
