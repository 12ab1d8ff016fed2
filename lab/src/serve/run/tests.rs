use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::{
    record::{Actor, EventKind},
    scenario,
};

/// Longer than anything here waits.
const LONG: Duration = Duration::from_secs(3600);

/// A run that nobody watches yet.
fn run() -> Arc<Run> {
    let scenario = scenario::find("token-33-34").unwrap();
    Start::new(scenario.name, Play::Scenario(scenario)).run()
}

/// Checks that a run ends because nobody has looked for so long, and not before.
async fn assert_ends_after(run: &Run, patience: Duration) {
    let begun = Instant::now();
    timeout(LONG, run.unwatched()).await.expect("it ends");
    let took = begun.elapsed();
    assert!((patience..patience + 2 * CHECK_EVERY).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn run_ends_when_nobody_has_looked_for_a_minute_and_not_before() {
    let run = run();
    assert_ends_after(&run, UNWATCHED).await;

    let watching = run.watch();
    assert!(timeout(LONG, run.unwatched()).await.is_err(), "somebody looks");
    drop(watching);
    assert_ends_after(&run, UNWATCHED).await;
}

#[tokio::test(start_paused = true)]
async fn run_that_a_page_leaves_ends_soon_unless_another_watches_it() {
    let run = run();
    run.leave();
    assert_ends_after(&run, LEFT).await;

    // The connection of the page that left may last a moment.
    let leaving = run.watch();
    run.leave();
    assert!(timeout(LEFT, run.unwatched()).await.is_err(), "it is watched");
    drop(leaving);
    assert_ends_after(&run, LEFT).await;

    // Another page that watches has not left, and may connect again later.
    let watching = run.watch();
    run.leave();
    assert!(timeout(LONG, run.unwatched()).await.is_err(), "another page looks");
    drop(watching);
    assert_ends_after(&run, UNWATCHED).await;
}

/// A sandbox that is about to start.
fn sandbox() -> Start {
    let settings = json!({
        "fence": "on", "claims": "on", "locks": "redis", "store": "sqlite", "ttl_ms": 5_000,
    });
    Start::new("a", Play::Sandbox(serde_json::from_value(settings).unwrap(), Vec::new()))
}

#[tokio::test(start_paused = true)]
async fn action_is_rejected_while_the_first_steps_are_done() {
    let Start { run, mut requests, .. } = sandbox();
    let Answer::Rejected(rejection) = run.act("client 1: read").await else {
        panic!("not rejected")
    };
    assert!(rejection.detail.contains("first steps"), "{rejection:?}");
    assert!(requests.try_recv().is_err(), "nothing was requested");
}

#[tokio::test]
async fn sandbox_in_which_too_much_has_happened_can_only_be_ended() {
    let Start { run, mut requests, .. } = sandbox();
    let event = Recorder::start(|_| {}).record(Actor::Client1, None, EventKind::Started);
    run.progress.send_modify(|progress| {
        progress.events = vec![event; MOST_EVENTS];
        progress.is_ready = true;
    });
    assert!(matches!(run.act("client 1: read").await, Answer::Rejected(_)));
    assert!(requests.try_recv().is_err(), "nothing was requested");
    let ending = async {
        let Request { action, answer } = requests.recv().await.unwrap();
        answer.send(Answer::Done).unwrap();
        action
    };
    let (answer, action) = tokio::join!(run.act("sandbox: end"), ending);
    assert_eq!((answer, action), (Answer::Done, Action::End));
}
