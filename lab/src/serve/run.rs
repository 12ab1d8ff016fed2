//! A run that is played now, or was.

#[cfg(test)]
mod tests;

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot, watch,
    },
    time::{Instant, sleep, timeout},
};

use crate::{
    record::{Event, Outcomes, Recorder},
    sandbox::{self, Action, Answer, RejectedAction, Request, Settings},
    scenario::Scenario,
};

/// How long a run goes on that nobody looks at.
const UNWATCHED: Duration = Duration::from_secs(60);
/// How long a run goes on that nobody looks at, after a page has left it. Another page may be
/// connecting again. One that still watches by then has not left.
const LEFT: Duration = Duration::from_secs(2);
/// How long an action waits for what is done first.
const STEPS: Duration = Duration::from_secs(30);
/// How often that is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// More events than anybody causes by hand.
const MOST_EVENTS: usize = 10_000;

/// A run, which any number of pages watch.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: String,
    /// While it is played, nothing else is started under this name.
    pub(super) name: String,
    progress: watch::Sender<Progress>,
    /// When a page has left it, unless another has watched it since.
    left: Mutex<Option<Instant>>,
    /// Where actions go, if it is a sandbox.
    requests: Option<UnboundedSender<Request>>,
}

/// What is played.
#[derive(Debug)]
pub(super) enum Play {
    Scenario(&'static Scenario),
    /// With what is done first.
    Sandbox(Settings, Vec<Action>),
}

/// A run that is about to start.
#[derive(Debug)]
pub(super) struct Start {
    run: Arc<Run>,
    play: Play,
    requests: UnboundedReceiver<Request>,
}

/// What has happened in a run so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) events: Vec<Event>,
    /// When the last of them happened.
    pub(super) last: Option<Instant>,
    /// Whether what is done first in a sandbox is done.
    pub(super) is_ready: bool,
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

impl Start {
    /// A run under a name and a random id.
    pub(super) fn new(name: &str, play: Play) -> Self {
        let (sender, requests) = unbounded_channel();
        let run = Arc::new(Run {
            id: format!("{:032x}", rand::random::<u128>()),
            name: name.to_owned(),
            progress: watch::Sender::default(),
            left: Mutex::default(),
            requests: matches!(play, Play::Sandbox(..)).then_some(sender),
        });
        Self { run, play, requests }
    }

    pub(super) fn run(&self) -> Arc<Run> {
        self.run.clone()
    }

    /// Plays the run to its end, or until it is left. Its processes end before its end is reported.
    pub(super) async fn play(self, ttl_factor: u32) {
        let Self { run, play, requests } = self;
        let recording = run.clone();
        let recorder = Recorder::start(move |event| {
            recording.progress.send_modify(|progress| {
                progress.events.push(event.clone());
                progress.last = Some(Instant::now());
            });
        });
        let playing = AssertUnwindSafe(async {
            match play {
                Play::Scenario(scenario) => scenario.replay(recorder, ttl_factor).await,
                Play::Sandbox(settings, steps) => {
                    let ready = || run.progress.send_modify(|progress| progress.is_ready = true);
                    sandbox::play(settings, &steps, recorder, ready, requests).await
                }
            }
        });
        let end = tokio::select! {
            played = playing.catch_unwind() => match played {
                Ok(Ok(record)) => End::Played { holds: record.holds, outcome: record.outcome },
                Ok(Err(error)) => End::Failed(format!("{error:#}")),
                Err(_) => End::Failed("a defect of the lab: its output says where".to_owned()),
            },
            () = run.unwatched() => End::Left,
        };
        run.progress.send_modify(|progress| progress.end = Some(end));
    }
}

impl Run {
    /// Watches the run. While somebody does, it goes on.
    pub(super) fn watch(&self) -> watch::Receiver<Progress> {
        *self.left() = None;
        self.progress.subscribe()
    }

    pub(super) fn is_playing(&self) -> bool {
        self.progress.borrow().end.is_none()
    }

    /// A page leaves the run. Unless another watches it, it ends soon.
    pub(super) fn leave(&self) {
        *self.left() = Some(Instant::now());
    }

    /// Carries out an action in a sandbox: `client 1: acquire`. Returns when its events are recorded.
    pub(super) async fn act(&self, action: &str) -> Answer {
        let rejected =
            |key, detail: &str| Answer::Rejected(RejectedAction { key, detail: detail.to_owned() });
        let Some(requests) = &self.requests else {
            return rejected("not-now", "this run is no sandbox");
        };
        let action = match action.parse::<Action>() {
            Ok(action) => action,
            Err(reason) => return rejected("not-now", &reason),
        };
        // Its end is the way to its outcome.
        if action != Action::End && self.progress.borrow().events.len() >= MOST_EVENTS {
            return rejected("too-much", "too much has happened in this sandbox: start another");
        }
        // Nobody has yet seen the state in which that would be done.
        let mut progress = self.progress.subscribe();
        let ready = progress.wait_for(|progress| progress.is_ready || progress.end.is_some());
        if timeout(STEPS, ready).await.is_err() {
            return rejected("not-now", "its first steps are not done yet");
        }
        drop(progress);
        let (answer, answered) = oneshot::channel();
        let has_ended = || rejected("ended", "the sandbox has ended");
        if requests.send(Request { action, answer }).is_err() {
            return has_ended();
        }
        answered.await.unwrap_or_else(|_| has_ended())
    }

    /// Waits until nobody has looked for a while.
    async fn unwatched(&self) {
        let mut watched = Instant::now();
        while watched.elapsed() < if self.left().is_some() { LEFT } else { UNWATCHED } {
            sleep(CHECK_EVERY).await;
            if self.progress.receiver_count() > 0 {
                watched = Instant::now();
                // The connection of the page that left may last a moment. Another page's lasts longer.
                self.left().take_if(|left| left.elapsed() > LEFT);
            }
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<Instant>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
