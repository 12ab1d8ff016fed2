//! What one register promises beyond the rule.

use std::{sync::Arc, time::Duration};

use fence::{
    RejectionReason,
    object_store::{RegisterError, Registers},
};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use tokio::time::sleep;

use super::{applied, offer, recorded::Recorded, rejected};
use crate::names::name;

const REGISTER: &str = "accounts/alice/fence.register";

fn registers(store: Arc<InMemory>) -> Registers {
    Registers::new(store, Path::from("accounts"))
}

#[tokio::test]
async fn claim_returns_the_value_and_cuts_older_tokens_off() {
    let registers = registers(Arc::default());
    let mut first = registers.register(&name("alice"));
    let mut second = registers.register(&name("alice"));
    assert_eq!(applied(first.claim(&offer(33, "a")).await).value, None);
    let _ = applied(first.write(&offer(33, "a"), "100".into()).await);
    let claimed = applied(second.claim(&offer(34, "b")).await);
    assert_eq!((claimed.version, claimed.value), (3, Some("100".into())));
    let _ = applied(second.write(&offer(34, "b"), "70".into()).await);

    // It still remembers the register as its own.
    let stale = rejected(first.write(&offer(33, "a"), "70".into()).await);
    assert_eq!((stale.reason, stale.highest_token.as_u64()), (RejectionReason::Stale, 34));
    let conflict = rejected(first.delete(&offer(34, "a")).await);
    assert_eq!(conflict.reason, RejectionReason::HolderConflict);
    let _ = applied(second.delete(&offer(34, "b")).await);
    let read = first.read().await.unwrap();
    assert_eq!((read.fence, read.value), (Some(offer(34, "b")), None), "a delete keeps the fence");
}

/// The register has forgotten the place of its write, so a handle that trusted its memory would not
/// know the outcome.
#[tokio::test]
async fn client_that_paused_for_long_is_rejected() {
    let registers = registers(Arc::default());
    let mut first = registers.register(&name("alice"));
    let _ = applied(first.claim(&offer(33, "a")).await);
    let mut second = registers.register(&name("alice"));
    for _ in 0..20 {
        let _ = applied(second.write(&offer(34, "b"), "70".into()).await);
    }
    sleep(Duration::from_millis(1100)).await;
    let stale = rejected(first.write(&offer(33, "a"), "50".into()).await);
    assert_eq!(stale.highest_token.as_u64(), 34);
}

/// A rejection must not come from what a handle remembers: the operator has restored an older state.
#[tokio::test]
async fn lost_register_is_an_error_and_no_missing_fence() {
    let store = Arc::new(InMemory::new());
    let registers = registers(store.clone());
    let path = Path::from(REGISTER);
    let mut alice = registers.register(&name("alice"));
    let _ = applied(alice.write(&offer(34, "a"), "100".into()).await);
    let old = store.get(&path).await.unwrap().bytes().await.unwrap();
    let _ = applied(alice.write(&offer(34, "a"), "70".into()).await);

    for restored in [None, Some(old)] {
        match restored {
            None => store.delete(&path).await.unwrap(),
            Some(old) => drop(store.put(&path, old.into()).await.unwrap()),
        }
        for _ in 0..2 {
            let write = alice.write(&offer(34, "a"), "40".into()).await;
            assert!(matches!(write, Err(RegisterError::Lost { seen: 2, .. })), "{write:?}");
            let claim = alice.claim(&offer(33, "a")).await;
            assert!(matches!(claim, Err(RegisterError::Lost { seen: 2, .. })), "{claim:?}");
            let read = alice.read().await;
            assert!(matches!(read, Err(RegisterError::Lost { seen: 2, .. })), "{read:?}");
        }
    }
    // Another register of the same version is not this one either, nor one that has overtaken it.
    store.delete(&path).await.unwrap();
    let mut bob = registers.register(&name("alice"));
    for version in 1..=17 {
        assert_eq!(applied(bob.claim(&offer(1, "b")).await).version, version);
        let write = alice.write(&offer(34, "a"), "40".into()).await;
        assert!(matches!(write, Err(RegisterError::Lost { seen: 2, .. })), "{version}: {write:?}");
    }
    // The control: a register that goes on.
    let seen = bob.latest_seen().unwrap().clone();
    for _ in 0..20 {
        let _ = applied(bob.claim(&offer(35, "b")).await);
        let mut other = registers.register(&name("alice"));
        other.note_seen(seen.clone());
        let _ = other.read().await.unwrap();
    }
}

#[tokio::test]
async fn foreign_object_is_not_replaced() {
    let store = Arc::new(InMemory::new());
    let path = Path::from(REGISTER);
    store.put(&path, "my own file".into()).await.unwrap();
    let mut alice = registers(store.clone()).register(&name("alice"));
    let write = alice.write(&offer(34, "a"), "100".into()).await;
    assert!(matches!(write, Err(RegisterError::Malformed { .. })), "{write:?}");
    let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, "my own file");
}

/// The next write of a client that holds its lock is one request, with no read, unless the test was
/// paused for a second.
#[tokio::test]
async fn held_register_takes_one_request_for_a_write() {
    let recorded = Recorded::default();
    let counted = Arc::new(recorded.clone());
    let registers = Registers::new(counted, Path::ROOT);
    let mut alice = registers.register(&name("alice"));
    let _ = applied(alice.claim(&offer(34, "a")).await);
    let before = recorded.requests();
    for _ in 0..10 {
        let _ = applied(alice.write(&offer(34, "a"), "100".into()).await);
    }
    let requests = recorded.requests() - before;
    assert!((10..20).contains(&requests), "{requests} for 10 writes");
}
