//! Whether a write that failed may have been applied.

use std::{collections::HashMap, future::pending, sync::Mutex, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    flawed::{Request, answered, lost},
    *,
};
use crate::committer::job::UnavailableOutcome;

/// What happens to the writes of a register.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Answered(u16),
    Lost,
}

/// The outcome of a write whose first request, and whose later ones, end so.
async fn outcome(first: Fault, later: Fault) -> UnavailableOutcome {
    let world = World::new();
    world.write("r", 1, "before").await.unwrap();
    let faults = Arc::new(Mutex::new(vec![first]));
    world.flawed.before(move |request, path| {
        let is_write = request == Request::Put && path.as_ref().contains("fence.register");
        let fault = is_write.then(|| faults.lock().unwrap().pop().unwrap_or(later));
        async move {
            match fault {
                None => Ok(()),
                Some(Fault::Answered(status)) => Err(answered(status).await),
                Some(Fault::Lost) => Err(lost()),
            }
        }
    });
    world.write("r", 1, "after").await.unwrap_err().outcome
}

/// R2 takes one write a second for each key.
#[tokio::test(start_paused = true)]
async fn write_that_the_store_rejected_each_time_is_not_unknown() {
    use Fault::{Answered, Lost};
    use UnavailableOutcome::Unknown;

    let none = UnavailableOutcome::None;
    for (first, later, expected) in [
        (Answered(429), Answered(429), none),
        (Answered(409), Answered(409), none),
        (Answered(403), Answered(403), none),
        (Answered(501), Answered(501), none),
        // It may have been applied before.
        (Lost, Answered(429), Unknown),
        (Answered(503), Answered(429), Unknown),
        (Answered(503), Answered(503), Unknown),
    ] {
        assert_eq!(outcome(first, later).await, expected, "{first:?} {later:?}");
    }
}

/// Nothing refers to a value that was not uploaded to its end.
#[tokio::test(start_paused = true)]
async fn write_that_ran_out_of_time_before_it_was_sent_is_not_unknown() {
    for (part, expected) in [
        ("fence.values", UnavailableOutcome::None),
        ("fence.register", UnavailableOutcome::Unknown),
    ] {
        let world = World::new();
        world.write("r", 1, "before").await.unwrap();
        world.flawed.before(move |request, path| {
            let hangs = request == Request::Put && path.as_ref().contains(part);
            async move {
                match hangs {
                    true => pending().await,
                    false => Ok(()),
                }
            }
        });
        let value = "x".repeat(20_000);
        let outcome = world.write("r", 1, &value).await.unwrap_err().outcome;
        assert_eq!(outcome, expected, "{part}");
    }
    // Also while it waits to be sent again, after the read has taken most of the time.
    let world = World::new();
    world.write("r", 1, "before").await.unwrap();
    sleep(Duration::from_secs(2)).await;
    world.flawed.before(|request, _| async move {
        match request {
            Request::Put => Err(answered(429).await),
            _ => {
                sleep(Duration::from_secs(4)).await;
                Ok(())
            }
        }
    });
    let outcome = world.write("r", 1, "after").await.unwrap_err().outcome;
    assert_eq!(outcome, UnavailableOutcome::None);
}

/// As R2 does. Each server probes its store once a second.
#[tokio::test(start_paused = true)]
async fn servers_that_share_a_store_with_one_write_a_second_for_each_key_are_ready() {
    let flawed = Flawed::default();
    let servers = [World::on(&flawed), World::on(&flawed)];
    let written: Arc<Mutex<HashMap<Path, Instant>>> = Arc::default();
    flawed.before(move |request, path| {
        let mut written = written.lock().unwrap();
        let last = written.get(path).copied();
        let is_early = last.is_some_and(|last| last.elapsed() < Duration::from_secs(1));
        let is_rejected = request == Request::Put && is_early;
        if request == Request::Put && !is_early {
            written.insert(path.clone(), Instant::now());
        }
        async move { if is_rejected { Err(answered(429).await) } else { Ok(()) } }
    });
    for _ in 0..3 {
        for server in &servers {
            server.store.probe().await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    // Nothing is left of their probes.
    for server in &servers {
        server.store.close().await;
    }
    assert!(flawed.memory.list(None).next().await.is_none());
}
