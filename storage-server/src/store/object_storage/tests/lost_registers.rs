//! Registers that were deleted, or replaced by older ones.

use std::time::Duration;

use object_store::PutPayload;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    flawed::{Request, lost},
    *,
};
use crate::{
    committer::job::UnavailableOutcome,
    store::{maintenance::Maintenance, object_storage::maintenance::ObjectStorageMaintenance},
};

/// Whether it failed because the register was lost.
#[track_caller]
fn assert_lost(decided: Result<Decided, Unavailable>, outcome: UnavailableOutcome) {
    let unavailable = decided.expect_err("the fence is forgotten");
    assert_eq!(unavailable.outcome, outcome, "{unavailable}");
    assert!(unavailable.reason.contains("the register of `r` was lost"), "{unavailable}");
    assert!(!unavailable.reason.contains("connection"), "{unavailable}");
}

/// No request decides anything on the resource.
async fn assert_that_nothing_is_decided(world: &World) {
    for token in [33, 1, 99] {
        assert_lost(world.write("r", token, "late").await, UnavailableOutcome::None);
        assert_lost(world.submit("r", token, Action::Claim).await, UnavailableOutcome::None);
        assert_lost(world.submit("r", token, Action::Read).await, UnavailableOutcome::None);
    }
    let read = world.read("r").await;
    assert!(matches!(read, Err(ReadError::Unreadable(_))), "{read:?}");
    let page = Page { prefix: String::new(), after: String::new(), limit: 9, until: None };
    assert_eq!(world.store.list(&page).await.unwrap().resources, []);
}

/// Writes until the server holds the register: the next write is sent without a read.
async fn held() -> World {
    let world = World::new();
    for _ in 0..3 {
        world.write("r", 36, "value").await.unwrap();
    }
    let reads = world.flawed.requests(Request::Get, "/r/");
    world.write("r", 36, "value").await.unwrap();
    assert_eq!(world.flawed.requests(Request::Get, "/r/"), reads, "it is held");
    world
}

#[tokio::test]
async fn register_that_was_deleted_while_it_was_held_is_never_begun_anew() {
    let world = held().await;
    world.flawed.memory.delete(&register("r")).await.unwrap();
    // The write may have been made before that.
    assert_lost(world.write("r", 36, "next").await, UnavailableOutcome::Unknown);
    assert_that_nothing_is_decided(&world).await;
    // The control: a server that has not seen it.
    let new = World::on(&world.flawed);
    assert!(new.read("r").await.unwrap().fence.is_none());
    new.write("r", 1, "late").await.unwrap();
    // Nor is it the register, now that it is there again.
    assert_that_nothing_is_decided(&world).await;
}

/// The bucket comes back from a backup.
#[tokio::test(start_paused = true)]
async fn older_register_is_noticed_after_the_store_was_gone() {
    let world = World::new();
    world.write("r", 33, "old").await.unwrap();
    let old = world.flawed.memory.get(&register("r")).await.unwrap().bytes().await.unwrap();
    for _ in 0..3 {
        world.write("r", 36, "new").await.unwrap();
    }
    for hangs in [false, true] {
        world.flawed.before(move |_, _| async move {
            if hangs {
                sleep(Duration::from_secs(3600)).await;
            }
            Err(lost())
        });
        world.write("r", 36, "lost").await.unwrap_err();
        world.submit("r", 36, Action::Read).await.unwrap_err();
        world.read("r").await.unwrap_err();
        world.flawed.mend();
        let restored = PutPayload::from(old.clone());
        world.flawed.memory.put(&register("r"), restored).await.unwrap();
        assert_that_nothing_is_decided(&world).await;
    }
}

/// A load for Terraform, or a transaction, uses the resource at the same time.
#[tokio::test]
async fn request_under_way_hides_no_lost_register_from_others() {
    let world = held().await;
    world.flawed.memory.delete(&register("r")).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let is_first = Arc::new(Semaphore::new(1));
    let (at_the_gate, first) = (gate.clone(), is_first.clone());
    world.flawed.before(move |request, _| {
        let is_held = request == Request::Get && first.try_acquire().map(|it| it.forget()).is_ok();
        let gate = at_the_gate.clone();
        async move {
            if is_held {
                gate.acquire().await.unwrap().forget();
            }
            Ok(())
        }
    });
    let store = world.store.clone();
    let loading = tokio::spawn(async move {
        let resource = &name("r");
        store.load(&[Wanted { resource, value: WantedValue::Description }]).await.unwrap().remove(0)
    });
    while is_first.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    assert_that_nothing_is_decided(&world).await;
    gate.add_permits(1);
    loading.await.unwrap().unwrap_err();
    assert_that_nothing_is_decided(&world).await;
}

#[tokio::test]
async fn register_that_was_lost_while_its_fence_is_set_is_reported_as_lost() {
    let world = World::new();
    world.write("r", 33, "value").await.unwrap();
    let registers = Registers::new(Arc::new(world.flawed.clone()), Path::from("folder"));
    let mut maintenance = ObjectStorageMaintenance::new(registers);
    let resource = name("r");
    let before = maintenance.stored(&resource).await.unwrap();
    let fence = Fence { token: Token::new(35).unwrap(), holder: Default::default() };
    let memory = world.flawed.memory.clone();
    world.flawed.before(move |request, path| {
        let (memory, path) = (memory.clone(), path.clone());
        async move {
            if request == Request::Put {
                memory.delete(&path).await?;
            }
            Ok(())
        }
    });
    let set = maintenance.set_fence(&resource, before.as_ref(), &fence, Default::default()).await;
    let error = set.unwrap_err().to_string();
    assert!(error.contains("the register of `r` was lost"), "{error}");
    assert!(error.contains("`storage-server fence show r`"), "{error}");
    assert!(!error.contains("claim"), "{error}");
    assert_eq!(world.flawed.requests(Request::Put, "/r/"), 2, "it is sent once");
}

#[tokio::test(start_paused = true)]
async fn fence_that_may_have_been_set_is_reported_as_unknown() {
    let world = World::new();
    world.write("r", 33, "value").await.unwrap();
    let registers = Registers::new(Arc::new(world.flawed.clone()), Path::from("folder"));
    let mut maintenance = ObjectStorageMaintenance::new(registers);
    let resource = name("r");
    let before = maintenance.stored(&resource).await.unwrap();
    let fence = Fence { token: Token::new(35).unwrap(), holder: Default::default() };
    for hangs in [false, true] {
        world.flawed.before(move |request, _| async move {
            if request == Request::Put {
                if hangs {
                    sleep(Duration::from_secs(3600)).await;
                }
                return Err(lost());
            }
            Ok(())
        });
        let set =
            maintenance.set_fence(&resource, before.as_ref(), &fence, Default::default()).await;
        let error = set.unwrap_err().to_string();
        assert!(error.contains("It is not known whether the fence was set"), "{error}");
        assert!(!error.contains("claim"), "{error}");
    }
    world.flawed.mend();
    let set = maintenance.set_fence(&resource, before.as_ref(), &fence, Default::default()).await;
    assert!(set.unwrap(), "the control");
}
