//! A run that is played now, or was.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    record::{Event, Outcomes, Recorder},
    scenario::Scenario,
};

/// How long a run goes on that nobody looks at.
const UNWATCHED: Duration = Duration::from_secs(60);
/// How long a run goes on that nobody looks at, after a page has left it. Another page may be
/// connecting again.
const LEFT: Duration = Duration::from_secs(2);
/// How often that is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A run, which any number of pages watch.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: String,
    pub(super) scenario: &'static Scenario,
    progress: watch::Sender<Progress>,
    left: AtomicBool,
}

/// What has happened in a run so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) events: Vec<Event>,
    pub(super) end: Option<End>,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum End {
    /// It was played in all worlds.
    Played { holds: bool, outcome: Outcomes },
    /// A server or a client failed.
    Failed(String),
    /// Nobody looked any more.
    Left,
}

impl Run {
    /// A run that has not started yet, under a random id.
    pub(super) fn new(scenario: &'static Scenario) -> Self {
        let id = format!("{:032x}", rand::random::<u128>());
        Self { id, scenario, progress: watch::Sender::default(), left: AtomicBool::new(false) }
    }

    /// Watches the run. While somebody does, it goes on.
    pub(super) fn watch(&self) -> watch::Receiver<Progress> {
        self.left.store(false, Relaxed);
        self.progress.subscribe()
    }

    pub(super) fn is_playing(&self) -> bool {
        self.progress.borrow().end.is_none()
    }

    /// A page leaves the run. Unless another watches it, it ends soon.
    pub(super) fn leave(&self) {
        self.left.store(true, Relaxed);
    }

    /// Waits until nobody has looked for a while.
    async fn unwatched(&self) {
        let mut watched = Instant::now();
        while watched.elapsed() < if self.left.load(Relaxed) { LEFT } else { UNWATCHED } {
            sleep(CHECK_EVERY).await;
            if self.progress.receiver_count() > 0 {
                watched = Instant::now();
            }
        }
    }
}

/// Plays a run to its end, or until it is left. Its processes end before its end is reported.
pub(super) async fn play(run: Arc<Run>, ttl_factor: u32) {
    let recording = run.clone();
    let recorder = Recorder::start(move |event| {
        recording.progress.send_modify(|progress| progress.events.push(event.clone()));
    });
    let replay = AssertUnwindSafe(run.scenario.replay(recorder, ttl_factor)).catch_unwind();
    let end = tokio::select! {
        played = replay => match played {
            Ok(Ok(record)) => End::Played { holds: record.holds, outcome: record.outcome },
            Ok(Err(error)) => End::Failed(format!("{error:#}")),
            Err(_) => End::Failed("a defect of the lab: its output says where".to_owned()),
        },
        () = run.unwatched() => End::Left,
    };
    run.progress.send_modify(|progress| progress.end = Some(end));
}
