//! What the clones of a lease know of each other's claims.

use super::*;

/// Another resource of the same name, under a clone of the lease, and of another client.
fn second(world: &Claimed) -> FencedResource {
    through(&world.proxy).under(&world.lease.clone(), &name("r"))
}

#[tokio::test]
async fn clone_neither_claims_again_nor_reissues_for_a_claim_of_another() {
    let world = Claimed::with_33().await;
    let second = second(&world);
    let claims = world.proxy.requests("/v1/fences/");
    assert_eq!(second.write(TEXT, "second").await.unwrap(), 2);
    assert_eq!(world.proxy.requests("/v1/fences/"), claims, "it was claimed already");

    let somebody = Fence { token: token(50), holder: fence::Holder::random() };
    let storage = Storage::new(world.server.url()).unwrap();
    let claimed = storage.claim(&name("r"), &somebody).await.unwrap();
    assert_eq!(claimed, Answer::Accepted(2));
    assert_lost(second.write(TEXT, "third").await, Some(stale(33, 50)));
    assert_lost(world.resource.write(TEXT, "third").await, None);
    assert_eq!(kept(&world.server).await, Some(("second".to_owned(), 2)));
}

#[tokio::test]
async fn unknown_outcome_of_one_clone_is_resolved_by_a_read_of_another() {
    let world = Claimed::with_33().await;
    let second = second(&world);
    let late = world.write_late("late value").await;
    assert_unknown(second.write(TEXT, "new").await);
    assert_eq!(read(&second).await.unwrap().as_deref(), Some("old"));
    assert!(late.deliver().await.unwrap().starts_with("HTTP/1.1 412"));
    assert_eq!(world.resource.write(TEXT, "new").await.unwrap(), 2);
}

#[tokio::test]
async fn clones_use_a_resource_one_after_the_other() {
    let world = Claimed::with_33().await;
    let second = second(&world);
    let held = world.proxy.hold("late value");
    let write = world.resource.write(TEXT, "late value");
    let (outcome, read_meanwhile) = tokio::join!(write, async {
        let caught = held.caught().await.unwrap();
        let mut reading = Box::pin(read(&second));
        let early = tokio::time::timeout(std::time::Duration::from_millis(200), &mut reading).await;
        assert!(early.is_err(), "the write is not over: {early:?}");
        let late = caught.cut();
        let read = reading.await.unwrap();
        assert!(late.deliver().await.unwrap().starts_with("HTTP/1.1 200"), "it has its answer");
        read
    });
    assert_eq!(outcome.unwrap(), 2, "it was sent again");
    assert_eq!(read_meanwhile.as_deref(), Some("late value"));
    assert_eq!(kept(&world.server).await, Some(("late value".to_owned(), 2)));
    assert_eq!(world.lease.token(), Ok(token(33)));
}

/// Only the resource that a late write may change has an unknown outcome.
#[tokio::test]
async fn unknown_outcome_on_one_resource_leaves_the_others_as_they_are() {
    let world = Claimed::with_33().await;
    let other = through(&world.proxy).under(&world.lease, &name("other"));
    let late = world.write_late("late value").await;
    assert_eq!(other.write(TEXT, "one").await.unwrap(), 1);
    assert_eq!(read(&world.resource).await.unwrap().as_deref(), Some("old"));
    assert_eq!(world.lease.token(), Ok(token(34)));
    assert_eq!(other.write(TEXT, "two").await.unwrap(), 2);
    let value = other.read().await.unwrap().unwrap();
    assert_eq!((text(&value).as_str(), value.token), ("two", Some(token(33))));
    assert!(late.deliver().await.unwrap().starts_with("HTTP/1.1 412"));
}
