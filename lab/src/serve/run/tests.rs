use tokio::time::timeout;

use super::*;
use crate::scenario;

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

    let watching = run.watch();
    run.leave();
    assert!(timeout(LONG, run.unwatched()).await.is_err(), "another page looks");
    drop(watching);
    assert_ends_after(&run, LEFT).await;
}
