//! The sessions that the locks of a client share, by their ttls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    ensemble::Ensemble,
    session::{Purpose, Session, Usage},
};
use crate::{backend::BackendError, mutex::Locked, ttl::Ttl};

/// How long a session without a node is kept at least.
const IDLE_TIME: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct OpenSessions {
    open: Mutex<BTreeMap<Ttl, Vec<Arc<Session>>>>,
    /// One try at a time opens a session, and the others wait for it.
    opening: tokio::sync::Mutex<()>,
    /// The same for locks that move.
    moving: tokio::sync::Mutex<()>,
}

impl OpenSessions {
    /// Returns a session of this ttl that has room for another node.
    pub(super) async fn get(
        &self,
        ensemble: &Ensemble,
        ttl: Ttl,
        purpose: Purpose,
    ) -> Result<Arc<Session>, BackendError> {
        if let Some(session) = self.with_room(ttl) {
            return Ok(session);
        }
        let _turn = match purpose {
            Purpose::Try => self.opening.lock().await,
            Purpose::Held => self.moving.lock().await,
        };
        if let Some(session) = self.with_room(ttl) {
            return Ok(session);
        }
        let session = Session::open(ensemble, ttl, Usage::Shared).await?;
        let mut open = self.open.locked();
        // One session without a node is enough: each needs a connection.
        open.values_mut().for_each(|sessions| sessions.retain(|session| !session.is_idle()));
        open.entry(ttl).or_default().push(session.clone());
        Ok(session)
    }

    fn with_room(&self, ttl: Ttl) -> Option<Arc<Session>> {
        let has_room = |session: &&Arc<Session>| session.is_used() && !session.is_full();
        self.open.locked().get(&ttl)?.iter().find(has_room).cloned()
    }

    /// Forgets those that had no node for long, and those that are not used any more: they expire. Returns
    /// whether none is left.
    pub(super) fn sweep(&self) -> bool {
        let mut open = self.open.locked();
        open.retain(|ttl, sessions| {
            let was_used = |session: &Arc<Session>| {
                session.proven().elapsed() < ttl.as_duration().max(IDLE_TIME)
            };
            sessions
                .retain(|session| session.is_used() && (was_used(session) || !session.is_idle()));
            !sessions.is_empty()
        });
        open.is_empty()
    }
}
