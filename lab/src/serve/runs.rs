//! All runs of a server.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::mpsc::UnboundedSender;

use super::run::{Play, Run, Start};

/// How many runs are played at once, each with some processes.
const MOST_PLAYING: usize = 4;
/// How many are kept, with their events, for pages that are reloaded.
const MOST_KEPT: usize = 50;

/// Runs that are played now, and the last ones that were.
#[derive(Debug)]
pub(super) struct Runs {
    runs: Mutex<VecDeque<Arc<Run>>>,
    starts: UnboundedSender<Start>,
}

impl Runs {
    /// No runs yet. Those that are started are sent to be played.
    pub(super) fn new(starts: UnboundedSender<Start>) -> Self {
        Self { runs: Mutex::default(), starts }
    }

    /// Starts a run. If one is played under this name already, it is returned instead, so that a double
    /// click starts nothing twice. Returns `None` if too many are played at once.
    pub(super) fn start(&self, name: &str, play: Play) -> Option<Arc<Run>> {
        let mut runs = self.locked();
        let playing: Vec<&Arc<Run>> = runs.iter().filter(|run| run.is_playing()).collect();
        if let Some(run) = playing.iter().find(|run| run.name == name) {
            return Some(Arc::clone(run));
        }
        if playing.len() >= MOST_PLAYING {
            return None;
        }
        let start = Start::new(name, play);
        let run = start.run();
        self.starts.send(start).ok()?;
        runs.push_back(run.clone());
        if runs.len() > MOST_KEPT
            && let Some(oldest) = runs.iter().position(|run| !run.is_playing())
        {
            runs.remove(oldest);
        }
        Some(run)
    }

    /// Finds the run of an id.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Run>> {
        self.locked().iter().find(|run| run.id == id).cloned()
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
