//! A pool whose last used connection is used again at once.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use sqlx::{Connection, Database, Pool, pool::PoolConnection};
use tokio::time::timeout;

/// A connection that was used so lately is taken to be alive.
const SURELY_ALIVE: Duration = Duration::from_millis(100);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool whose last used connection is used again at once. The pool itself would ask each
/// connection, every time it comes back, whether it still lives: a round trip more for each batch.
#[derive(Debug)]
pub(super) struct KeptPool<DB: Database> {
    pool: Pool<DB>,
    kept: Mutex<Option<(PoolConnection<DB>, Instant)>>,
}

impl<DB: Database> KeptPool<DB> {
    pub(super) fn new(pool: Pool<DB>) -> Self {
        Self { pool, kept: Mutex::new(None) }
    }

    /// The pool, for what is not in a hurry.
    pub(super) fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Takes a connection. One that was kept for a while is asked first whether it still lives: a
    /// change that is sent to a dead one would have an unknown outcome.
    pub(super) async fn take(&self) -> Result<PoolConnection<DB>, sqlx::Error> {
        let kept = self.kept.lock().expect("no panic while it is held").take();
        if let Some((mut connection, used)) = kept {
            if used.elapsed() < SURELY_ALIVE {
                return Ok(connection);
            }
            match timeout(PING_TIMEOUT, connection.ping()).await {
                Ok(Ok(())) => return Ok(connection),
                Ok(Err(_)) | Err(_) => connection.close_on_drop(),
            }
        }
        self.pool.acquire().await
    }

    /// Gives back a connection that has no statement under way.
    pub(super) fn give_back(&self, connection: PoolConnection<DB>) {
        let mut kept = self.kept.lock().expect("no panic while it is held");
        kept.get_or_insert((connection, Instant::now()));
    }
}
