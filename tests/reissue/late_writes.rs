//! Writes with unknown outcome: they land late, have already landed, or their future
//! was dropped.

use lock_client::storage::StorageError;

use super::*;
use crate::{fences::new_fence, lock_service::unrenewed};

const STALE: &str = "HTTP/1.1 412";

#[tokio::test]
async fn late_write_is_cut_off_by_the_read_that_follows_it() {
    let world = Claimed::with_33().await;
    let late = world.write_late("late value").await;
    let sent = world.proxy.requests("PUT ");

    assert_unknown(world.resource.write(TEXT, "new").await);
    assert_unknown(world.resource.delete().await);
    assert_eq!(world.proxy.requests("PUT "), sent, "nothing was sent");
    assert_eq!(world.proxy.requests("DELETE "), 0, "nothing was sent");
    assert_eq!(world.lease.token(), Ok(token(33)));

    assert_eq!(read(&world.resource).await.unwrap().as_deref(), Some("old"), "it has not landed");
    assert_eq!(world.lease.token(), Ok(token(34)));
    assert_eq!(fence(&world.server).await, shown(34, &world.lease));
    let answer = late.deliver().await.unwrap();
    assert!(answer.starts_with(STALE), "{answer}");
    assert_eq!(kept(&world.server).await, Some(("old".to_owned(), 1)), "it never will");

    assert_eq!(world.resource.write(TEXT, "new").await.unwrap(), 2);
    let answer = late.deliver().await.unwrap();
    assert!(answer.starts_with(STALE), "{answer}");
    assert_eq!(kept(&world.server).await, Some(("new".to_owned(), 2)));
}

#[tokio::test]
async fn late_delete_is_cut_off_by_the_read_that_follows_it() {
    let world = Claimed::with_33().await;
    let late = world.change_late("DELETE ", world.resource.delete()).await;
    assert_unknown(world.resource.delete().await);
    assert_eq!(read(&world.resource).await.unwrap().as_deref(), Some("old"));
    let answer = late.deliver().await.unwrap();
    assert!(answer.starts_with(STALE), "{answer}");
    assert_eq!(kept(&world.server).await, Some(("old".to_owned(), 1)));
}

#[tokio::test]
async fn write_that_landed_before_the_read_is_shown_by_it() {
    let world = Claimed::with_33().await;
    let late = world.write_late("late value").await;
    assert!(late.deliver().await.unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(read(&world.resource).await.unwrap().as_deref(), Some("late value"));
    assert_eq!(fence(&world.server).await, shown(34, &world.lease));
    assert_eq!(world.resource.write(TEXT, "new").await.unwrap(), 3);
}

/// Nothing is reissued, because the outcome becomes known.
#[tokio::test]
async fn write_without_a_reply_is_sent_again_under_its_number() {
    let world = Claimed::with_33().await;
    for (version, value) in [(2, "first value"), (3, "second value")] {
        world.proxy.lose_reply_to(value);
        assert_eq!(world.resource.write(TEXT, value).await.unwrap(), version);
        assert!(world.proxy.has_struck());
        assert_eq!(world.proxy.requests(value), 2);
        assert_eq!(kept(&world.server).await, Some((value.to_owned(), version)));
    }
    world.proxy.lose_reply_to("DELETE ");
    world.resource.delete().await.unwrap();
    assert_eq!(world.proxy.requests("DELETE "), 2);
    assert_eq!(world.resource.write(TEXT, "new").await.unwrap(), 5);
    assert_eq!(fence(&world.server).await, shown(33, &world.lease));
}

/// The control: without a number, the repeat is another write.
#[tokio::test]
async fn write_that_is_sent_again_without_a_number_is_made_twice() {
    let world = Claimed::with_33().await;
    let (storage, r) = (through(&world.proxy), name("r"));
    let fence = world.lease.fence().unwrap();
    let write = async || storage.write(&r, &fence, TEXT, "value").await;
    world.proxy.lose_reply_to("PUT ");
    assert!(matches!(write().await, Err(StorageError::Unknown(_))));
    assert_eq!(write().await.unwrap(), Answer::Accepted(3));
}

/// The first try arrives after the write that followed it.
#[tokio::test]
async fn late_try_of_a_write_that_was_sent_again_changes_nothing() {
    let world = Claimed::with_33().await;
    let held = world.proxy.hold("late value");
    let write = world.resource.write(TEXT, "late value");
    let (written, late) = tokio::join!(write, async { held.caught().await.unwrap().cut() });
    assert_eq!(written.unwrap(), 2);
    assert_eq!(world.resource.write(TEXT, "newer").await.unwrap(), 3);
    assert!(late.deliver().await.unwrap().starts_with("HTTP/1.1 200"), "the first answer");
    assert_eq!(kept(&world.server).await, Some(("newer".to_owned(), 3)));
}

/// A rejection does not say that the try before it has changed nothing.
#[tokio::test]
async fn repeat_that_is_rejected_leaves_the_outcome_unknown() {
    let world = Claimed::with_33().await;
    let held = world.proxy.hold("late value");
    let write = world.resource.write(TEXT, "late value");
    let (written, late) = tokio::join!(write, async {
        let caught = held.caught().await.unwrap();
        let claim = Storage::new(world.server.url()).unwrap();
        assert!(matches!(claim.claim(&name("r"), &new_fence(34)).await, Ok(Answer::Accepted(_))));
        caught.cut()
    });
    assert_unknown(written);
    assert_unknown(world.resource.write(TEXT, "new").await);
    assert!(late.deliver().await.unwrap().starts_with(STALE));
    assert_eq!(kept(&world.server).await, Some(("old".to_owned(), 1)));
}

/// The storage is gone for longer than the lease.
#[tokio::test]
async fn repeats_end_with_the_lease() {
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let redis = redis_before(33).await;
    let lease = locks(&redis.url()).acquire(&name("r"), unrenewed(5_000)).await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let resource = through(&proxy).under(&lease, &name("r"));
    assert_eq!(resource.write(TEXT, "old").await.unwrap(), 1);
    let held = proxy.hold("late value");
    let write = resource.write(TEXT, "late value");
    let (written, ()) = tokio::join!(write, async {
        let caught = held.caught().await.unwrap();
        server.process().kill().unwrap();
        drop(caught.cut());
    });
    assert_unknown(written);
    assert!(lease.remaining() < std::time::Duration::from_millis(1_600), "it was sent again");
}

/// The broken variant of the first test: it reads with the token of the write.
#[tokio::test]
async fn read_with_the_same_token_lets_a_late_write_land_over_a_newer_one() {
    let world = Claimed::with_33().await;
    let (storage, r) = (through(&world.proxy), name("r"));
    let fence = world.lease.fence().unwrap();
    let held = world.proxy.hold("late value");
    let write = storage.write(&r, &fence, TEXT, "late value");
    let (outcome, late) = tokio::join!(write, async { held.caught().await.unwrap().cut() });
    assert!(matches!(outcome, Err(lock_client::storage::StorageError::Unknown(_))), "{outcome:?}");

    let Answer::Accepted(Some(value)) = storage.fenced_read(&r, &fence).await.unwrap() else {
        panic!("it is the fence's own token")
    };
    assert_eq!(text(&value), "old");
    let newer = storage.write(&r, &fence, TEXT, "newer").await.unwrap();
    assert_eq!(newer, Answer::Accepted(2));
    assert!(late.deliver().await.unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(kept(&world.server).await, Some(("late value".to_owned(), 3)), "newer is lost");
}

#[tokio::test]
async fn write_whose_future_was_dropped_is_resolved_by_a_read_before_the_next_write() {
    let world = Claimed::with_33().await;
    let held = world.proxy.hold("dropped value");
    let late = tokio::select! {
        outcome = world.resource.write(TEXT, "dropped value") => panic!("no answer: {outcome:?}"),
        caught = held.caught() => caught.unwrap().cut(),
    };
    let sent = world.proxy.requests("PUT ");
    assert_unknown(world.resource.write(TEXT, "new").await);
    assert_eq!(world.proxy.requests("PUT "), sent, "nothing was sent");
    assert_eq!(read(&world.resource).await.unwrap().as_deref(), Some("old"));
    assert_eq!(world.lease.token(), Ok(token(34)));
    let answer = late.deliver().await.unwrap();
    assert!(answer.starts_with(STALE), "{answer}");
    assert_eq!(world.resource.write(TEXT, "new").await.unwrap(), 2);
}

/// The reply to the read after an unknown outcome may be lost as well. The read is then repeated.
#[tokio::test]
async fn read_whose_reply_is_lost_leaves_the_outcome_unknown() {
    let world = Claimed::with_33().await;
    let late = world.write_late("late value").await;
    world.proxy.lose_reply_to("GET ");
    let unread = world.resource.read().await;
    assert!(matches!(unread, Err(FencedError::Unavailable(_))), "{unread:?}");
    assert_unknown(world.resource.write(TEXT, "new").await);
    assert_eq!(read(&world.resource).await.unwrap().as_deref(), Some("old"));
    assert_eq!(world.lease.token(), Ok(token(34)), "which is above the late write's");
    assert!(late.deliver().await.unwrap().starts_with(STALE));
    assert_eq!(world.resource.write(TEXT, "new").await.unwrap(), 2);
}
