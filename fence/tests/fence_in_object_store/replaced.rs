//! Registers whose changes another program decides, and the list of all registers.

use std::sync::Arc;

use fence::object_store::{
    Leftover, NewValue, Register, RegisterError, Registers, Replaced, Replacement, Snapshot,
};
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};

use super::{applied, offer};
use crate::names::name;

fn replacement(attributes: &str, value: NewValue) -> Replacement {
    Replacement { fence: Some(offer(34, "a")), attributes: attributes.to_owned(), value }
}

fn large(letter: &str) -> NewValue {
    NewValue::Present(letter.repeat(16 * 1024 + 1).into())
}

async fn replace(
    register: &mut Register,
    read: &Snapshot,
    next: Replacement,
) -> (Snapshot, Option<Leftover>) {
    match register.replace(read, next).await.unwrap() {
        Replaced::Applied { now, leftover } => (now, leftover),
        other => panic!("{other:?}"),
    }
}

async fn read(register: &mut Register) -> (Snapshot, Option<String>) {
    let snapshot = register.snapshot().await.unwrap();
    let value = register.value(&snapshot).await.unwrap();
    (snapshot, value.map(|value| String::from_utf8(value.to_vec()).unwrap()))
}

fn registers() -> (Arc<InMemory>, Registers) {
    let store = Arc::new(InMemory::new());
    (store.clone(), Registers::new(store, Path::from("folder")))
}

#[tokio::test]
async fn register_is_replaced_only_if_it_is_as_it_was_read() {
    let (_, registers) = registers();
    let mut alice = registers.register(&name("alice"));
    let (nothing, _) = read(&mut alice).await;
    assert_eq!((nothing.version(), nothing.attributes()), (0, None));
    let (first, _) =
        replace(&mut alice, &nothing, replacement("1", NewValue::Present("70".into()))).await;

    // A rival has read the same.
    let mut rival = registers.register(&name("alice"));
    let overtaken = rival.replace(&nothing, replacement("rival", NewValue::Absent)).await;
    assert!(matches!(overtaken, Ok(Replaced::Overtaken { leftover: None })), "{overtaken:?}");
    let (found, value) = read(&mut rival).await;
    assert_eq!((found.version(), found.attributes()), (1, Some("1")));
    assert_eq!((found.fence(), value.as_deref()), (Some(&offer(34, "a")), Some("70")));

    // Without another read.
    let no_fence = Replacement { fence: None, ..replacement("2", NewValue::Kept) };
    let (second, _) = replace(&mut alice, &first, no_fence).await;
    let (third, _) = replace(&mut alice, &second, replacement("3", NewValue::Kept)).await;
    assert_eq!((second.fence(), third.inline_bytes()), (None, 2));
    let (found, value) = read(&mut rival).await;
    assert_eq!((found.version(), found.attributes()), (3, Some("3")));
    assert_eq!(value.as_deref(), Some("70"));
    let (gone, _) = replace(&mut rival, &found, replacement("4", NewValue::Absent)).await;
    assert!(!gone.has_value());
}

/// It was lost after it was read, by this handle or another one.
#[tokio::test]
async fn register_that_was_lost_is_not_replaced() {
    let (store, registers) = registers();
    let mut alice = registers.register(&name("alice"));
    let (nothing, _) = read(&mut alice).await;
    let (first, _) = replace(&mut alice, &nothing, replacement("1", NewValue::Absent)).await;
    store.delete(&Path::from("folder/alice/fence.register")).await.unwrap();
    let mut other = registers.register(&name("alice"));
    for register in [&mut alice, &mut other] {
        let replaced = register.replace(&first, replacement("2", NewValue::Absent)).await;
        assert!(matches!(replaced, Err(RegisterError::Lost { seen: 1, .. })), "{replaced:?}");
    }
    // A new handle knows only what it was given.
    let mut new = registers.register(&name("alice"));
    assert_eq!(new.snapshot().await.unwrap().version(), 0, "the control");
    new.note_seen(alice.latest_seen().unwrap().clone());
    let found = new.snapshot().await;
    assert!(matches!(found, Err(RegisterError::Lost { seen: 1, .. })), "{found:?}");
}

/// The caller counts the bytes of its snapshots.
#[tokio::test]
async fn handle_keeps_no_value_beside_the_snapshots() {
    let (_, registers) = registers();
    let mut alice = registers.register(&name("alice"));
    let (nothing, _) = read(&mut alice).await;
    let value = replacement("1", NewValue::Present("needle".into()));
    let (first, _) = replace(&mut alice, &nothing, value.clone()).await;
    assert!(format!("{first:?}").contains("needle"), "the control");
    let overtaken = alice.replace(&nothing, value).await.unwrap();
    assert!(matches!(overtaken, Replaced::Overtaken { .. }), "{overtaken:?}");
    let debug = format!("{alice:?}");
    let (_, known) = debug.split_once("known: ").unwrap();
    assert!(!known.contains("needle"), "{known}");
}

/// They would leave attributes that are not those of the new state.
#[tokio::test]
async fn clients_that_know_no_attributes_change_nothing() {
    let (_, registers) = registers();
    let mut alice = registers.register(&name("alice"));
    let (nothing, _) = read(&mut alice).await;
    replace(&mut alice, &nothing, replacement("1", NewValue::Present("70".into()))).await;
    let mut client = registers.register(&name("alice"));
    for changed in [
        client.claim(&offer(35, "b")).await,
        client.write(&offer(35, "b"), "x".into()).await,
        client.delete(&offer(35, "b")).await,
    ] {
        assert!(matches!(changed, Err(RegisterError::Malformed { .. })), "{changed:?}");
    }
    assert_eq!(read(&mut alice).await.0.version(), 1);
    // The control: their own register.
    let _ = applied(registers.register(&name("bob")).claim(&offer(35, "b")).await);
}

#[tokio::test]
async fn values_that_were_replaced_or_uploaded_in_vain_are_leftovers() {
    let (store, registers) = registers();
    let values = async || {
        let folder = Path::from("folder/alice/fence.values");
        store.list_with_delimiter(Some(&folder)).await.unwrap().objects.len()
    };
    let mut alice = registers.register(&name("alice"));
    let (nothing, _) = read(&mut alice).await;
    let (first, none) = replace(&mut alice, &nothing, replacement("1", large("x"))).await;
    assert!(none.is_none());
    let (kept, none) = replace(&mut alice, &first, replacement("2", NewValue::Kept)).await;
    assert!(none.is_none() && kept.has_value());
    let mut rival = registers.register(&name("alice"));
    let in_vain = match rival.replace(&first, replacement("rival", large("y"))).await.unwrap() {
        Replaced::Overtaken { leftover } => leftover.unwrap(),
        other => panic!("{other:?}"),
    };
    let (_, replaced) = replace(&mut alice, &kept, replacement("3", large("z"))).await;
    assert_eq!(values().await, 3);
    in_vain.delete().await.unwrap();
    replaced.unwrap().delete().await.unwrap();
    assert_eq!(values().await, 1);
    assert!(read(&mut rival).await.1.unwrap().starts_with('z'));
    // What a crash has left is collected, and the attributes stay.
    let lost = Path::from("folder/alice/fence.values/00000000000000000003-lost");
    store.put(&lost, "x".into()).await.unwrap();
    // One that may still be referred to is left to a collector that changes the register.
    let earlier = Path::from("folder/alice/fence.values/00000000000000000002-lost");
    store.put(&earlier, "x".into()).await.unwrap();
    assert_eq!(alice.collect_earlier().await.unwrap(), 1);
    assert_eq!(read(&mut rival).await.0.version(), 3);
    assert_eq!(alice.collect().await.unwrap(), 1);
    let (collected, value) = read(&mut rival).await;
    assert_eq!((collected.version(), collected.attributes()), (4, Some("3")));
    assert!(value.unwrap().starts_with('z'));
}

#[tokio::test]
async fn resources_are_listed_by_their_names() {
    let (store, registers) = registers();
    let longest = "🐢".repeat(128);
    let mut names = ["alice", "order/42", "a b%2F+&?#=", "~", "...", &longest].map(name);
    for name in &names {
        let _ = applied(registers.register(name).write(&offer(1, "a"), "x".into()).await);
    }
    for foreign in ["folder/~scratch/x", "folder/order%2f43/x", "folder/file", "other/bob/x"] {
        store.put(&Path::parse(foreign).unwrap(), "x".into()).await.unwrap();
    }
    let mut listed = registers.resources().await.unwrap();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
}
