//! A pool whose last used connections are used again at once.

use std::sync::Mutex;

use sqlx::{Database, Pool, pool::PoolConnection};

/// As many connections as there are batches on their way are kept.
const KEPT: usize = 2;

/// A pool whose last used connections are used again at once. The pool itself would ask each
/// connection, every time it comes back, whether it still lives: a round trip more for each batch.
#[derive(Debug)]
pub(super) struct KeptPool<DB: Database> {
    pool: Pool<DB>,
    kept: Mutex<Vec<PoolConnection<DB>>>,
}

impl<DB: Database> KeptPool<DB> {
    pub(super) fn new(pool: Pool<DB>) -> Self {
        Self { pool, kept: Mutex::new(Vec::with_capacity(KEPT)) }
    }

    /// The pool, for what is not in a hurry.
    pub(super) fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Takes a connection. A kept one may have died meanwhile.
    pub(super) async fn take(&self) -> Result<PoolConnection<DB>, sqlx::Error> {
        let kept = self.kept.lock().expect("no panic while it is held").pop();
        match kept {
            Some(connection) => Ok(connection),
            None => self.pool.acquire().await,
        }
    }

    /// Gives back a connection that has no statement under way.
    pub(super) fn give_back(&self, connection: PoolConnection<DB>) {
        let mut kept = self.kept.lock().expect("no panic while it is held");
        if kept.len() < KEPT {
            kept.push(connection);
        }
    }
}
