//! A pool that reuses its last connection without a check.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use sqlx::{
    Connection, Database, Pool,
    pool::{PoolConnection, PoolOptions},
};
use tokio::{select, sync::oneshot, time::timeout};

/// A connection that was used less than this ago is assumed to be alive.
const ASSUMED_ALIVE: Duration = Duration::from_millis(100);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool that keeps the last used connection, and reuses it without a check. The pool itself pings
/// every connection that is returned to it, which would cost each batch one more round trip.
#[derive(Debug)]
pub(super) struct KeptPool<DB: Database> {
    pool: Mutex<Pool<DB>>,
    options: PoolOptions<DB>,
    kept: Mutex<Kept<DB>>,
    replaced_at: ReplacedAt,
}

#[derive(Debug)]
struct Kept<DB: Database> {
    /// The kept connection, and when it was last used.
    connection: Option<(PoolConnection<DB>, Instant)>,
    /// Those that ask the pool for a connection, and also take the next one that would be kept: the pool
    /// itself may have none for them.
    waiting: VecDeque<oneshot::Sender<PoolConnection<DB>>>,
}

type Next<DB> = oneshot::Receiver<PoolConnection<DB>>;

impl<DB: Database> KeptPool<DB> {
    pub(super) fn new(
        pool: PoolOptions<DB>,
        options: <DB::Connection as Connection>::Options,
        replaced_at: ReplacedAt,
    ) -> Self {
        let replaced = replaced_at.clone();
        let pool_options = pool.before_acquire(move |_, connection| {
            let is_older = replaced.is_younger_than(connection.age);
            Box::pin(async move { Ok(!is_older) })
        });
        let pool = Mutex::new(pool_options.clone().connect_lazy_with(options));
        let kept = Mutex::new(Kept { connection: None, waiting: VecDeque::new() });
        Self { pool, options: pool_options, kept, replaced_at }
    }

    /// Replaces all connections by others, to another server. Those that are in use are closed when
    /// they are returned. They have no place in the new pool: their server may never answer.
    pub(super) fn connect_to(&self, options: <DB::Connection as Connection>::Options) {
        self.replaced_at.replace_all();
        let new = self.options.clone().connect_lazy_with(options);
        let old = mem::replace(&mut *self.pool.lock().expect("no panic while it is held"), new);
        // It is closed from the call on. Nobody waits for its connections.
        drop(old.close());
        if let Some((mut kept, _)) = self.kept().connection.take() {
            kept.close_on_drop();
        }
    }

    /// Takes a connection. A connection that was kept for a while is pinged first: a change that is
    /// sent over a dead one would have an unknown outcome.
    pub(super) async fn take(&self) -> Result<PoolConnection<DB>, sqlx::Error> {
        loop {
            let (mut connection, used) = match self.kept_or_next() {
                Ok(kept) => kept,
                Err(next) => {
                    let pool = self.pool.lock().expect("no panic while it is held").clone();
                    return select! {
                        acquired = pool.acquire() => acquired,
                        Ok(connection) = next => Ok(connection),
                    };
                }
            };
            if self.replaced_at.is_after(used) {
                // It goes back to the pool, which closes it.
                continue;
            }
            if used.elapsed() < ASSUMED_ALIVE {
                return Ok(connection);
            }
            match timeout(PING_TIMEOUT, connection.ping()).await {
                Ok(Ok(())) => return Ok(connection),
                Ok(Err(_)) | Err(_) => connection.close_on_drop(),
            }
        }
    }

    /// The kept connection and when it was last used, or the next one that would be kept.
    fn kept_or_next(&self) -> Result<(PoolConnection<DB>, Instant), Next<DB>> {
        let mut kept = self.kept();
        kept.connection.take().ok_or_else(|| {
            let (waiting, next) = oneshot::channel();
            kept.waiting.retain(|waiting| !waiting.is_closed());
            kept.waiting.push_back(waiting);
            next
        })
    }

    /// Keeps a connection on which no statement is running, and which was taken after a moment, or gives it
    /// to one that waits. If all connections were replaced since then, the pool closes it instead.
    pub(super) fn keep(&self, mut connection: PoolConnection<DB>, taken_after: Instant) {
        // While this is locked, `connect_to` has either replaced them already, or will find this one.
        let mut kept = self.kept();
        if self.replaced_at.is_after(taken_after) {
            return;
        }
        while let Some(waiting) = kept.waiting.pop_front() {
            connection = match waiting.send(connection) {
                Ok(()) => return,
                Err(connection) => connection,
            };
        }
        kept.connection.get_or_insert((connection, Instant::now()));
    }

    fn kept(&self) -> MutexGuard<'_, Kept<DB>> {
        self.kept.lock().expect("no panic while it is held")
    }
}

/// Connections that were made before this moment are closed instead of reused. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplacedAt(Arc<Mutex<Option<Instant>>>);

impl ReplacedAt {
    /// Lets all connections be replaced that were made until now.
    pub(super) fn replace_all(&self) {
        *self.0.lock().expect("no panic while it is held") = Some(Instant::now());
    }

    fn is_after(&self, moment: Instant) -> bool {
        let replaced_at = *self.0.lock().expect("no panic while it is held");
        replaced_at.is_some_and(|at| at >= moment)
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        let replaced_at = *self.0.lock().expect("no panic while it is held");
        // A moment was measured shortly before the other.
        replaced_at.is_some_and(|at| at.elapsed() <= age + Duration::from_millis(100))
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{
        Sqlite,
        sqlite::{SqliteConnectOptions, SqlitePoolOptions},
    };
    use tokio::task::yield_now;

    use super::*;

    /// Otherwise it would time out beside a connection that nobody uses.
    #[tokio::test]
    async fn connection_goes_to_the_one_that_waits_for_it() {
        let one = SqlitePoolOptions::new().max_connections(1).acquire_timeout(PING_TIMEOUT);
        let pool = KeptPool::<Sqlite>::new(
            one,
            SqliteConnectOptions::new().in_memory(true),
            ReplacedAt::default(),
        );
        let first = pool.take().await.unwrap();
        let keep = async {
            yield_now().await;
            pool.keep(first, Instant::now());
        };
        let (second, ()) = tokio::join!(pool.take(), keep);
        pool.keep(second.unwrap(), Instant::now());
        // The control: without one that waits, it is kept.
        assert!(pool.kept().connection.is_some());
    }
}
