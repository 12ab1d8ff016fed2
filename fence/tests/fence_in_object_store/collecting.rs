//! Large values, and how those that nobody refers to are deleted.

use std::sync::Arc;

use fence::object_store::{RegisterError, Registers};
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};

use super::{applied, offer};
use crate::names::name;

const VALUES: &str = "alice/fence.values";

fn large(letter: &str) -> String {
    letter.repeat(16 * 1024 + 1)
}

async fn values(store: &InMemory) -> Vec<Path> {
    let listed = store.list_with_delimiter(Some(&Path::from(VALUES))).await.unwrap();
    listed.objects.into_iter().map(|object| object.location).collect()
}

#[tokio::test]
async fn only_values_that_nothing_can_refer_to_are_deleted() {
    let store = Arc::new(InMemory::new());
    let registers = Registers::new(store.clone(), Path::ROOT);
    let mut alice = registers.register(&name("alice"));
    // The longest value that is part of its register, and the shortest that is not.
    let _ = applied(alice.write(&offer(34, "a"), vec![b'x'; 16 * 1024].into()).await);
    assert_eq!(values(&store).await, []);
    let _ = applied(alice.write(&offer(34, "a"), large("x").into()).await);
    let _ = applied(alice.write(&offer(34, "a"), large("y").into()).await);
    assert_eq!(values(&store).await.len(), 2);
    assert_eq!(alice.collect().await.unwrap(), 1);

    // A claim carries the value on.
    let claimed = applied(alice.claim(&offer(35, "b")).await);
    assert_eq!(claimed.value.unwrap(), large("y"));
    assert_eq!(alice.collect().await.unwrap(), 0);

    // Writers that have uploaded their values, and have yet to write: one has read the current version.
    let version = alice.read().await.unwrap().version;
    for read in [0, version, version + 1] {
        let name = format!("{VALUES}/{read:020}-paused");
        store.put(&Path::from(name), "z".into()).await.unwrap();
    }
    assert_eq!(alice.collect().await.unwrap(), 2);
    let read = alice.read().await.unwrap();
    assert_eq!(read.version, version + 1, "the writer of the current version is cut off");
    assert_eq!((read.fence, read.value.unwrap()), (Some(offer(35, "b")), large("y").into()));
    assert_eq!(values(&store).await.len(), 2, "one is the value, and one is ahead");

    let _ = applied(alice.delete(&offer(35, "b")).await);
    assert_eq!(alice.read().await.unwrap().value, None);
    let _ = applied(alice.claim(&offer(35, "b")).await);
    assert_eq!(alice.collect().await.unwrap(), 2);
    assert_eq!(values(&store).await, []);
}

#[tokio::test]
async fn value_that_was_deleted_by_others_is_an_error() {
    let store = Arc::new(InMemory::new());
    let mut alice = Registers::new(store.clone(), Path::ROOT).register(&name("alice"));
    let _ = applied(alice.write(&offer(34, "a"), large("x").into()).await);
    store.delete(&values(&store).await[0]).await.unwrap();
    for outcome in [alice.read().await.map(drop), alice.claim(&offer(34, "a")).await.map(drop)] {
        assert!(matches!(outcome, Err(RegisterError::Malformed { .. })), "{outcome:?}");
    }
    // A write replaces it.
    let _ = applied(alice.write(&offer(34, "a"), "70".into()).await);
    assert_eq!(alice.read().await.unwrap().value, Some("70".into()));
}
