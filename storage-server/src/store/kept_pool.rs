//! A pool that reuses its last connection without a check.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use sqlx::{Connection, Database, Pool, pool::PoolConnection};
use tokio::time::timeout;

/// A connection that was used less than this ago is assumed to be alive.
const ASSUMED_ALIVE: Duration = Duration::from_millis(100);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool that keeps the last used connection, and reuses it without a check. The pool itself pings
/// every connection that is returned to it, which would cost each batch one more round trip.
#[derive(Debug)]
pub(super) struct KeptPool<DB: Database> {
    pool: Pool<DB>,
    kept: Mutex<Option<(PoolConnection<DB>, Instant)>>,
}

impl<DB: Database> KeptPool<DB> {
    pub(super) fn new(pool: Pool<DB>) -> Self {
        Self { pool, kept: Mutex::new(None) }
    }

    /// The pool itself, for statements that may take their time.
    pub(super) fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Takes a connection. A connection that was kept for a while is pinged first: a change that is
    /// sent over a dead one would have an unknown outcome.
    pub(super) async fn take(&self) -> Result<PoolConnection<DB>, sqlx::Error> {
        let kept = self.kept.lock().expect("no panic while it is held").take();
        if let Some((mut connection, used)) = kept {
            if used.elapsed() < ASSUMED_ALIVE {
                return Ok(connection);
            }
            match timeout(PING_TIMEOUT, connection.ping()).await {
                Ok(Ok(())) => return Ok(connection),
                Ok(Err(_)) | Err(_) => connection.close_on_drop(),
            }
        }
        self.pool.acquire().await
    }

    /// Keeps a connection on which no statement is running.
    pub(super) fn keep(&self, connection: PoolConnection<DB>) {
        let mut kept = self.kept.lock().expect("no panic while it is held");
        kept.get_or_insert((connection, Instant::now()));
    }
}
