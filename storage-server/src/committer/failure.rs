//! The last commit, if it failed.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// How long a failure shows that the database takes no writes, if no later commit succeeds. After
/// that, a server that gets no writes because of its failure is tried again.
const RECENT: Duration = Duration::from_secs(30);

/// Why the last commit failed, if it did. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LastFailure(Arc<Mutex<Option<(Instant, String)>>>);

impl LastFailure {
    pub(super) fn note(&self, reason: &str) {
        let failure = (Instant::now(), reason.to_owned());
        *self.0.lock().expect("no panic while it is held") = Some(failure);
    }

    /// Forgets the failure, after a commit that has changed something. No other shows that the disk has space.
    pub(super) fn forget(&self) {
        *self.0.lock().expect("no panic while it is held") = None;
    }

    /// Why the last commit failed, if that was recently.
    pub(super) fn recent(&self) -> Option<String> {
        let failure = self.0.lock().expect("no panic while it is held");
        let recent = failure.as_ref().filter(|(at, _)| at.elapsed() < RECENT);
        recent.map(|(_, reason)| reason.clone())
    }
}
