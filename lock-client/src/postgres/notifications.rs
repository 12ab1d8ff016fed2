//! The one connection over which all waiters of a client are notified of freed locks.

use std::{io, mem, sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::{
    runtime::Builder,
    sync::watch,
    time::{sleep, timeout},
};

use super::primary::Primary;
use crate::{
    backend::Wakeups,
    clock::Moment,
    keeper::Keeper,
    retry::pauses,
    sql::{polling, pool::Pool},
    terms::Order,
    waiters::Waiters,
};

const CHANNEL: &str = "fenced_lock";
/// The longest pause before a lost connection is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a connection over which no notification arrived, as behind PgBouncer. There, the next
/// probe may disturb another client.
const PAUSE_WITHOUT_DELIVERY: Duration = Duration::from_secs(300);
/// How often the connection is checked.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a notification may take, in answer time-outs.
const PROBE_PATIENCE: u32 = 4;
/// How long a new waiter waits for the first probe. A fair waiter that tries nothing for 3 seconds loses
/// its place, however long an answer may take.
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// The subscriptions of a client. Their connection is made with the first one, and closed a little
/// after the last one.
#[derive(Clone)]
pub(super) struct Notifications {
    pool: Pool<sqlx::Postgres>,
    primary: Primary,
    registry: Arc<Registry>,
}

struct Registry {
    /// The name of the client's own channel ends with it.
    id: u64,
    waiters: Waiters,
    delivery: watch::Sender<Delivery>,
    /// The task that notifies the waiters.
    keeper: Keeper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Unknown,
    Works,
    Fails,
}

/// Why a connection of the waiters is closed.
#[derive(Debug)]
enum End {
    NobodyWaits,
    /// No notification arrives: it may lead through PgBouncer in transaction mode.
    Undelivered,
}

impl Notifications {
    pub(super) fn new(pool: Pool<sqlx::Postgres>, primary: Primary) -> Self {
        let (waiters, keeper, id) = (Waiters::default(), Keeper::default(), fastrand::u64(..));
        let delivery = watch::Sender::new(Delivery::Unknown);
        Self { pool, primary, registry: Arc::new(Registry { id, waiters, delivery, keeper }) }
    }

    /// Subscribes a waiter. When this returns, notifications are known to arrive, or the waiter polls.
    pub(super) async fn subscribe(
        &self,
        name: &ResourceName,
        holder: &Holder,
        order: Order,
    ) -> Wakeups {
        let mut delivery = self.registry.delivery.subscribe();
        let own = self.clone();
        let must_poll = move || {
            // The task may have ended with the runtime of another waiter.
            own.start();
            *own.registry.delivery.borrow() != Delivery::Works
        };
        let wakeups = polling::subscribe(&self.registry.waiters, name, holder, order, must_poll);
        // A waiter was added before.
        self.start();
        let known = delivery.wait_for(|&delivery| delivery != Delivery::Unknown);
        // Without an answer, the waiter polls until there is one.
        let _ = timeout(self.pool.answer_timeout().min(LONGEST_DELAY), known).await;
        wakeups
    }

    fn start(&self) {
        self.registry.keeper.start(|| {
            self.registry.delivery.send_replace(Delivery::Unknown);
            self.clone().listen()
        });
    }

    /// Keeps a connection as long as there are subscriptions.
    async fn listen(self) {
        let mut backoff = pauses(LONGEST_PAUSE);
        loop {
            let end = self.listen_once().await;
            if let Ok(End::NobodyWaits) = end {
                return;
            }
            tracing::debug!(?end, "there is no connection of the waiters");
            let worked = self.registry.delivery.send_replace(Delivery::Fails) == Delivery::Works;
            if worked {
                backoff = pauses(LONGEST_PAUSE);
            }
            let pause = backoff.next().expect("the pauses never end");
            sleep(match end {
                Ok(_) if !worked => PAUSE_WITHOUT_DELIVERY,
                _ => pause,
            })
            .await;
            if self.registry.is_finished() {
                return;
            }
        }
    }

    /// Connects, and forwards notifications until the connection is lost, or nobody waits any more.
    async fn listen_once(&self) -> Result<End, sqlx::Error> {
        let limit = self.pool.answer_timeout() * PROBE_PATIENCE;
        let (primary, _) = self.primary.find(self.pool.answer_timeout()).await?;
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(limit);
        let mut listener = PgListener::connect_with(&pool.connect_lazy_with(primary)).await?;
        listener.eager_reconnect(false);
        let end = self.forward(&mut listener, limit).await;
        close(listener, limit).await;
        end
    }

    /// Forwards notifications until the connection is lost, or nobody waits any more.
    async fn forward(
        &self,
        listener: &mut PgListener,
        limit: Duration,
    ) -> Result<End, sqlx::Error> {
        // Behind a pooler such as PgBouncer, a LISTEN stays with a session of the pooler, which delivers
        // the notifications to whatever client has that session then. So the channel of the probes is the
        // only one until a probe has arrived.
        let probes = format!("{CHANNEL}_probe_{:016x}", self.registry.id);
        timeout(limit, listener.listen(&probes)).await.map_err(|_| lost())??;
        let mut listens = false;
        loop {
            if self.registry.is_finished() {
                return Ok(End::NobodyWaits);
            }
            // The probe comes over another connection. PgBouncer would return one to its own sender.
            let sending = tokio::spawn(self.clone().send(probes.clone()));
            let (begun, mut arrived) = (Moment::now(), false);
            while begun.elapsed() < PROBE_INTERVAL {
                let limit = if arrived { PROBE_INTERVAL } else { limit };
                let left = limit.saturating_sub(begun.elapsed());
                match timeout(left, listener.try_recv()).await {
                    Ok(notification) => {
                        let notification = notification?.ok_or_else(lost)?;
                        if notification.channel() == CHANNEL {
                            self.registry.waiters.notify(notification.payload());
                            continue;
                        }
                        arrived = true;
                        if !mem::replace(&mut listens, true) {
                            timeout(limit, listener.listen(CHANNEL))
                                .await
                                .map_err(|_| lost())??;
                        }
                        self.registry.confirm_delivery();
                    }
                    Err(_) if arrived => {}
                    // A probe that was not sent proves nothing. It may still wait behind tries.
                    Err(_) => {
                        let is_sent = sending.is_finished() && sending.await.unwrap_or(false);
                        return if is_sent { Ok(End::Undelivered) } else { Err(lost()) };
                    }
                }
            }
        }
    }

    /// Sends a probe, and returns whether it was sent.
    async fn send(self, channel: String) -> bool {
        let probe = format!("select pg_catalog.pg_notify('{channel}', '')");
        match self.pool.fetch_aside(probe.into()).await {
            Ok(_) => true,
            // It came back to its sender: a pooler gave both the same session.
            Err(sqlx::Error::Protocol(_)) => true,
            Err(error) => {
                tracing::debug!(%error, "the connection of the waiters could not be checked");
                false
            }
        }
    }
}

impl Registry {
    /// Returns whether nobody waits. Then the next waiter starts a new task.
    fn is_finished(&self) -> bool {
        self.keeper.end_if(|| self.waiters.is_empty())
    }

    /// Records that notifications arrive. Before that, some may have been missed.
    fn confirm_delivery(&self) {
        if self.delivery.send_replace(Delivery::Works) != Delivery::Works {
            self.waiters.notify_all();
        }
    }
}

/// Closes a connection, even if it is silent.
///
/// When a `PgListener` is dropped, a task of its own sends UNLISTEN, and waits for the answer without a limit.
/// So the connection would stay open for as long as it is silent. Here, that task belongs to a runtime that
/// ends at once, and the task's connection with it.
async fn close(mut listener: PgListener, limit: Duration) {
    // 1. Let a pooler's session listen no more.
    let _ = timeout(limit, listener.unlisten_all()).await;
    // 2. Close the socket. Without a runtime of its own, the task may wait in the present one.
    if let Ok(ending) = Builder::new_current_thread().build() {
        let context = ending.enter();
        drop(listener);
        drop(context);
        ending.shutdown_background();
    }
}

fn lost() -> sqlx::Error {
    let reason = "the connection of the waiters was lost";
    io::Error::new(io::ErrorKind::ConnectionReset, reason).into()
}
