//! A token that must be swapped while the lock is lost or the lock service is down.

use lock_client::backend::BackendError;

use super::*;
use crate::programs::storage_server;

#[tokio::test]
async fn reissue_of_a_lock_that_is_lost_ends_the_lease_and_nothing_is_sent() {
    for somebody_else_has_it in [false, true] {
        let world = Claimed::with_33().await;
        let late = world.write_late("late value").await;
        let _: u64 = world.redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
        let _other = if somebody_else_has_it { Some(acquire(&world.redis).await) } else { None };
        let sent = world.proxy.requests("HTTP/1.1");
        assert_lost(world.resource.read().await, None);
        assert_lost(world.resource.read().await, None);
        assert_unknown(world.resource.write(TEXT, "new").await);
        assert_eq!(world.proxy.requests("HTTP/1.1"), sent, "nothing was sent");
        assert!(world.lease.token().is_err());
        assert!(
            late.deliver().await.unwrap().starts_with("HTTP/1.1 200"),
            "it had the highest token yet"
        );
    }
}

#[tokio::test]
async fn rejected_holder_that_lost_the_lock_has_claimed_nothing() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let mut redis = redis_before(33).await;
    let lease = acquire(&redis).await;
    redis.restart().await.unwrap();
    set_counter(&redis, 33).await;
    let other = acquire(&redis).await;
    assert_eq!(read(&under(&server, &other)).await.unwrap(), None);
    let resource = under(&server, &lease);
    assert_no_answer(&resource.write(TEXT, "late").await); // Its connection ended with that Redis.
    assert_lost(resource.write(TEXT, "late").await, None);
    assert_eq!(fence(&server).await, shown(34, &other));
    assert_eq!(kept(&server).await, None);
}

#[tokio::test]
async fn resource_is_used_again_when_a_lock_service_that_was_down_is_back() {
    let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let redis = redis.unwrap();
    set_counter(&redis, 32).await;
    let mut world = Claimed::on(redis).await;
    let late = world.write_late("late value").await;
    world.redis.process().kill().unwrap();
    let sent = world.proxy.requests("HTTP/1.1");
    for _ in 0..2 {
        assert_no_answer(&world.resource.read().await);
    }
    assert_unknown(world.resource.write(TEXT, "new").await);
    assert_eq!(world.proxy.requests("HTTP/1.1"), sent, "nothing was sent");
    assert_eq!(world.lease.token(), Ok(token(33)), "nothing was changed");

    world.redis.restart().await.unwrap();
    assert_eq!(read(&world.resource).await.unwrap().as_deref(), Some("old"));
    assert_eq!(fence(&world.server).await, shown(34, &world.lease));
    assert!(late.deliver().await.unwrap().starts_with("HTTP/1.1 412"));
    assert_eq!(world.resource.write(TEXT, "new").await.unwrap(), 2);
}

#[tokio::test]
async fn first_claim_is_made_when_a_lock_service_that_hung_continues() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let mut redis = redis_before(33).await;
    let lease = acquire(&redis).await;
    let above = Fence { token: token(40), holder: fence::Holder::random() };
    let storage = Storage::new(server.url()).unwrap();
    assert_eq!(storage.claim(&name("r"), &above).await.unwrap(), Answer::Accepted(0));

    let resource = under(&server, &lease);
    redis.process().pause().await.unwrap();
    assert_no_answer(&resource.write(TEXT, "value").await);
    assert_eq!((kept(&server).await, lease.token()), (None, Ok(token(33))));
    redis.process().resume().unwrap();

    // The reissue that was not answered is carried out now, and then another. So one token is
    // skipped.
    assert_eq!(resource.write(TEXT, "value").await.unwrap(), 1);
    let healed = lease.token().unwrap();
    assert!(healed > token(40), "{healed}");
    assert_eq!(fence(&server).await, shown(healed.as_u64(), &lease));
}

#[track_caller]
fn assert_no_answer<T: std::fmt::Debug>(outcome: &Result<T, FencedError>) {
    let no_answer = matches!(
        outcome,
        Err(FencedError::LockService(error)) if matches!(error.source, BackendError::Unavailable(_))
    );
    assert!(no_answer, "{outcome:?}");
}
