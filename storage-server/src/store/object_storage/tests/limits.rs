//! How much is read at once, and for how long.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    flawed::{Request, lost},
    *,
};

/// How many requests are under way at once.
#[derive(Clone, Default)]
struct UnderWay {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl UnderWay {
    /// Holds up such requests for a while, and counts them.
    fn count(world: &World, kind: Request, part: &'static str) -> Self {
        let counted = Self::default();
        let under_way = counted.clone();
        world.flawed.before(move |request, path| {
            let is_counted = request == kind && path.as_ref().contains(part);
            let Self { now, most } = under_way.clone();
            async move {
                if is_counted {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    sleep(Duration::from_millis(50)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                }
                Ok(())
            }
        });
        counted
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Otherwise clients could have the server load more than its memory holds.
#[tokio::test(start_paused = true)]
async fn plain_reads_and_lists_load_a_few_objects_at_once() {
    let world = World::new();
    world.write("small", 1, "x").await.unwrap();
    // Of 40 MiB.
    world.write("large", 1, &"x".repeat(40 << 20)).await.unwrap();

    let registers = UnderWay::count(&world, Request::Get, "register");
    for read in join_all((0..200).map(|_| world.read("small"))).await {
        read.unwrap();
    }
    assert_eq!(registers.most(), 32);
    let values = UnderWay::count(&world, Request::Get, "fence.values");
    for read in join_all((0..5).map(|_| world.read("large"))).await {
        assert_eq!(read.unwrap().version, 1);
    }
    assert_eq!(values.most(), 1);
    let lists = UnderWay::count(&world, Request::List, "");
    let page = Page { prefix: String::new(), after: String::new(), limit: 9, until: None };
    for list in join_all((0..10).map(|_| world.store.list(&page))).await {
        assert_eq!(list.unwrap().resources.len(), 2);
    }
    assert_eq!(lists.most(), 2);
    // The control: others are not held up by one that is slow.
    world.flawed.before(|request, path| {
        let is_slow = request == Request::Get && path.as_ref().contains("fence.values");
        async move {
            if is_slow {
                sleep(Duration::from_secs(9)).await;
            }
            Ok(())
        }
    });
    let (large, small) = tokio::join!(
        join_all((0..2).map(|_| world.read("large"))),
        join_all((0..200).map(|_| world.read("small"))),
    );
    assert!(large.iter().all(Result::is_ok) && small.iter().all(Result::is_ok));
}

/// As long as its upload may take.
#[tokio::test(start_paused = true)]
async fn large_value_that_was_stored_can_be_read() {
    let world = World::new();
    world.write("r", 1, &"x".repeat(30 << 20)).await.unwrap();
    for (seconds, is_in_time) in [(35, true), (45, false)] {
        world.flawed.before(move |request, path| {
            let is_slow = request == Request::Get && path.as_ref().contains("fence.values");
            async move {
                if is_slow {
                    sleep(Duration::from_secs(seconds)).await;
                }
                Ok(())
            }
        });
        let read = world.read("r").await.map_err(|error| format!("{error:?}"));
        assert_eq!(read.is_ok(), is_in_time, "{seconds}");
        if let Err(error) = read {
            assert!(error.contains("no answer within 40 s"), "{error}");
        }
        // A claim does not wait for the value.
        assert!(world.submit("r", 1, Action::Read).await.is_ok());
    }
    // A register has no large value to wait for.
    world.flawed.before(|_, _| async {
        sleep(Duration::from_secs(11)).await;
        Ok(())
    });
    let read = format!("{:?}", world.read("r").await.unwrap_err());
    assert!(read.contains("no answer within 10 s"), "{read}");
}

/// Each keeps its register.
#[tokio::test(start_paused = true)]
async fn page_that_is_full_of_deleted_resources_ends_early_and_the_next_goes_on() {
    const DELETED: usize = 150;
    let world = World::new();
    for number in 0..DELETED {
        let deleted = format!("{number:03}");
        world.submit(&deleted, 1, Action::Claim).await.unwrap();
    }
    for last in ["x", "y", "z"] {
        world.write(last, 1, "value").await.unwrap();
    }
    world.flawed.before(|request, _| async move {
        if request == Request::Get {
            sleep(Duration::from_secs(6)).await;
        }
        Ok(())
    });
    let (mut after, mut found, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let page = Page { prefix: String::new(), after: after.clone(), limit: 2, until: None };
        let listing = world.store.list(&page).await.unwrap();
        found.extend(listing.resources.iter().map(|it| it.resource.as_str().to_owned()));
        pages += 1;
        let Some(next) = listing.unfinished_after else { break };
        assert!(after.as_str() < next.as_str(), "{after} {next}");
        after = next.as_str().to_owned();
    }
    assert_eq!(found[..2], ["x", "y"]);
    assert!((2..10).contains(&pages), "{pages}");
    // Nothing was looked at: the store does not answer.
    world.flawed.before(|_, _| async {
        sleep(Duration::from_secs(31)).await;
        Ok(())
    });
    let page = Page { prefix: String::new(), after: String::new(), limit: 2, until: None };
    let error = format!("{:?}", world.store.list(&page).await.unwrap_err());
    assert!(error.contains("no answer within 30 s"), "{error}");
}

/// Otherwise the server would be ready, and answer nothing.
#[tokio::test]
async fn store_that_serves_no_reads_is_not_ready() {
    let world = World::new();
    world.store.probe().await.unwrap();
    for failing in [Request::Get, Request::Put] {
        world.flawed.before(move |request, _| async move {
            if request == failing { Err(lost()) } else { Ok(()) }
        });
        world.store.probe().await.unwrap_err();
    }
}
