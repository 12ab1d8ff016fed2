//! A pool that reuses its connections without a check.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use sqlx::{
    Connection, Database, Pool,
    pool::{PoolConnection, PoolOptions},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// A connection that was used less than this ago is assumed to be alive.
const ASSUMED_ALIVE: Duration = Duration::from_millis(100);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool that keeps the connections that were used, and reuses them without a check. The pool itself
/// pings every connection that is returned to it, which would cost each batch one more round trip.
#[derive(Debug)]
pub(super) struct KeptPool<DB: Database> {
    pool: Mutex<LimitedPool<DB>>,
    options: PoolOptions<DB>,
    /// Each with the moment when it was last used. The last one was used last.
    kept: Mutex<Vec<(PoolConnection<DB>, Instant)>>,
    replaced_at: ReplacedAt,
}

/// A pool, and a permit for each connection that may be taken at once. A call waits for a permit, and not in the
/// pool itself, which does not have the connections that are kept.
#[derive(Debug)]
struct LimitedPool<DB: Database> {
    connections: Pool<DB>,
    permits: Arc<Semaphore>,
}

impl<DB: Database> LimitedPool<DB> {
    fn new(
        options: PoolOptions<DB>,
        connect_options: <DB::Connection as Connection>::Options,
    ) -> Self {
        let most = usize::try_from(options.get_max_connections()).unwrap_or(Semaphore::MAX_PERMITS);
        let connections = options.connect_lazy_with(connect_options);
        Self { connections, permits: Arc::new(Semaphore::new(most)) }
    }
}

/// A connection that was taken. If it is dropped, it goes back to the pool itself.
#[derive(Debug)]
pub(super) struct Taken<DB: Database> {
    connection: PoolConnection<DB>,
    _permit: OwnedSemaphorePermit,
}

impl<DB: Database> Taken<DB> {
    /// Closes the connection when it is dropped.
    pub(super) fn close_on_drop(&mut self) {
        self.connection.close_on_drop();
    }
}

impl<DB: Database> Deref for Taken<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &Self::Target {
        &self.connection
    }
}

impl<DB: Database> DerefMut for Taken<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.connection
    }
}

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
        let pool = Mutex::new(LimitedPool::new(pool_options.clone(), options));
        Self { pool, options: pool_options, kept: Mutex::default(), replaced_at }
    }

    /// Replaces all connections by others, to another server. Those that are in use are closed when
    /// they are returned. They have no place in the new pool: their server may never answer.
    pub(super) fn connect_to(&self, options: <DB::Connection as Connection>::Options) {
        self.replaced_at.replace_all();
        let new = LimitedPool::new(self.options.clone(), options);
        let old = mem::replace(&mut *self.pool.lock().expect("no panic while it is held"), new);
        old.permits.close();
        // It is closed from the call on. Nobody waits for its connections.
        drop(old.connections.close());
        for (mut kept, _) in self.kept().drain(..) {
            kept.close_on_drop();
        }
    }

    /// Takes a connection, as soon as fewer are taken than the pool may have. One that was kept for a while
    /// is pinged first: a change that is sent over a dead one would have an unknown outcome.
    pub(super) async fn take(&self) -> Result<Taken<DB>, sqlx::Error> {
        let (pool, permit) = {
            let pool = self.pool.lock().expect("no panic while it is held");
            (pool.connections.clone(), pool.permits.clone().acquire_owned())
        };
        let permit = timeout(self.options.get_acquire_timeout(), permit).await;
        let permit = permit.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        let taken = |connection| Taken { connection, _permit: permit };
        loop {
            let kept = self.kept().pop();
            let Some((mut connection, used)) = kept else {
                return pool.acquire().await.map(taken);
            };
            if self.replaced_at.is_after(used) {
                // It goes back to the pool, which closes it.
                continue;
            }
            if used.elapsed() < ASSUMED_ALIVE {
                return Ok(taken(connection));
            }
            match timeout(PING_TIMEOUT, connection.ping()).await {
                Ok(Ok(())) => return Ok(taken(connection)),
                Ok(Err(_)) | Err(_) => connection.close_on_drop(),
            }
        }
    }

    /// Keeps a connection on which no statement is running, and which was taken after a moment. If all
    /// connections were replaced since then, the pool closes it instead.
    pub(super) fn keep(&self, taken: Taken<DB>, taken_after: Instant) {
        // While this is locked, `connect_to` has either replaced them already, or will find this one.
        let mut kept = self.kept();
        if self.replaced_at.is_after(taken_after) {
            return;
        }
        kept.push((taken.connection, Instant::now()));
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(PoolConnection<DB>, Instant)>> {
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
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::future::join_all;
    use sqlx::{
        Sqlite,
        sqlite::{SqliteConnectOptions, SqlitePoolOptions},
    };
    use tokio::{task::yield_now, time::sleep};

    use super::*;

    /// A pool of so many connections, and how many were made.
    fn pool(connections: u32) -> (KeptPool<Sqlite>, Arc<AtomicU64>) {
        let made = Arc::new(AtomicU64::new(0));
        let counted = made.clone();
        let options = SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(PING_TIMEOUT)
            .after_connect(move |_, _| {
                let earlier = counted.fetch_add(1, Ordering::Relaxed);
                // One that is made while others are in use takes longer than what they are used for.
                Box::pin(async move {
                    sleep(Duration::from_millis(5 * earlier.min(1))).await;
                    Ok(())
                })
            });
        let connect_options = SqliteConnectOptions::new().in_memory(true);
        (KeptPool::new(options, connect_options, ReplacedAt::default()), made)
    }

    /// Otherwise it would time out beside a connection that nobody uses.
    #[tokio::test]
    async fn kept_connection_goes_to_the_one_that_waits() {
        let (pool, _) = pool(1);
        let first = pool.take().await.unwrap();
        let keep = async {
            yield_now().await;
            pool.keep(first, Instant::now());
        };
        let (second, ()) = tokio::join!(pool.take(), keep);
        pool.keep(second.unwrap(), Instant::now());
        // The control: without one that waits, it is kept.
        assert_eq!(pool.kept().len(), 1);
    }

    /// A call that gives up a connection which is being made has it made in vain.
    #[tokio::test]
    async fn many_that_take_and_keep_have_no_more_connections_made_than_there_may_be() {
        let (pool, made) = pool(2);
        let take_and_keep = || async {
            for _ in 0..100 {
                let taken = pool.take().await.unwrap();
                yield_now().await;
                pool.keep(taken, Instant::now());
            }
        };
        join_all((0..8).map(|_| take_and_keep())).await;
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
