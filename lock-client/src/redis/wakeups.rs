//! The one connection over which all waiters of a client are notified of freed locks.

use std::{
    collections::HashMap,
    io,
    ops::ControlFlow,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{Either, select},
};
use redis::{
    Msg, RedisError, RedisResult,
    aio::{PubSub, PubSubSink},
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{server::Server, settings::closed};
use crate::backend::Wakeups;

/// The pause before a lost connection is made again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How often an idle connection is checked.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The subscriptions of a client. Their connection is made with the first one. It lasts as long as
/// the Tokio runtime in which it was made.
#[derive(Clone)]
pub(crate) struct Subscriptions {
    server: Arc<Server>,
    changes: Arc<Mutex<Option<mpsc::UnboundedSender<Change>>>>,
    next_id: Arc<AtomicU64>,
}

enum Change {
    Subscribe { channel: String, waiter: Waiter, done: oneshot::Sender<RedisResult<()>> },
    Unsubscribe { channel: String, id: u64 },
}

struct Waiter {
    id: u64,
    freed: Arc<Notify>,
}

/// Ends a subscription when it is dropped.
struct Subscription {
    channel: String,
    id: u64,
    changes: mpsc::UnboundedSender<Change>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let channel = std::mem::take(&mut self.channel);
        // If the task has ended, so have the connection and its subscriptions.
        let _ = self.changes.send(Change::Unsubscribe { channel, id: self.id });
    }
}

impl Subscriptions {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server, changes: Arc::default(), next_id: Arc::default() }
    }

    /// Subscribes to a channel. When this returns, Redis has confirmed it.
    pub(crate) async fn subscribe(&self, channel: String) -> RedisResult<Wakeups> {
        let changes = self.changes();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let freed = Arc::new(Notify::new());
        let waiter = Waiter { id, freed: freed.clone() };
        let (done, confirmed) = oneshot::channel();
        let ended = || closed("the connection for subscriptions has ended");
        let subscribe = Change::Subscribe { channel: channel.clone(), waiter, done };
        let subscription = Subscription { channel, id, changes: changes.clone() };
        changes.send(subscribe).map_err(|_| ended())?;
        confirmed.await.map_err(|_| ended())??;
        Ok(Wakeups::new(freed, subscription))
    }

    /// Returns the sender of changes. If the task that received them has ended with its runtime, a
    /// new one is started in the present runtime.
    fn changes(&self) -> mpsc::UnboundedSender<Change> {
        let mut changes = self.changes.lock().expect("nothing panics while it holds this");
        match &*changes {
            Some(open) if !open.is_closed() => open.clone(),
            _ => {
                let (sender, incoming) = mpsc::unbounded_channel();
                let task =
                    SubscriptionTask { server: self.server.clone(), channels: HashMap::new() };
                tokio::spawn(task.run(incoming));
                changes.insert(sender).clone()
            }
        }
    }
}

/// The task that keeps the connection and its subscriptions.
struct SubscriptionTask {
    server: Arc<Server>,
    channels: HashMap<String, Vec<Waiter>>,
}

type Changes = mpsc::UnboundedReceiver<Change>;

impl SubscriptionTask {
    /// Keeps a connection until the last sender of changes is dropped. Replaces it when it is lost.
    async fn run(mut self, mut changes: Changes) {
        loop {
            match self.server.connect_for_messages().await {
                Ok(connection) => match self.use_connection(connection, &mut changes).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, "lost the connection of the waiters"),
                },
                Err(error) => {
                    if self.fail_changes(&error, &mut changes).is_break() {
                        return;
                    }
                }
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Applies changes and forwards messages until the connection is lost, or until the last sender
    /// of changes is dropped.
    async fn use_connection(
        &mut self,
        connection: PubSub,
        changes: &mut Changes,
    ) -> RedisResult<()> {
        let (mut sink, mut messages) = connection.split();
        self.resubscribe(&mut sink).await?;
        loop {
            let change = pin!(changes.recv());
            match timeout(PING_INTERVAL, select(change, messages.next())).await {
                Ok(Either::Left((Some(change), _))) => self.apply(change, &mut sink).await?,
                Ok(Either::Left((None, _))) => return Ok(()),
                Ok(Either::Right((Some(message), _))) => self.notify(&message),
                Ok(Either::Right((None, _))) => {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                // A connection that was cut silently looks like an idle one.
                Err(_) => in_time(sink.ping::<()>()).await?,
            }
        }
    }

    /// Subscribes again to all channels. Messages may have been missed meanwhile, so all waiters
    /// are notified and try.
    async fn resubscribe(&mut self, sink: &mut PubSubSink) -> RedisResult<()> {
        if !self.channels.is_empty() {
            in_time(sink.subscribe(self.channels.keys().collect::<Vec<_>>())).await?;
        }
        for waiter in self.channels.values().flatten() {
            waiter.freed.notify_one();
        }
        Ok(())
    }

    async fn apply(&mut self, change: Change, sink: &mut PubSubSink) -> RedisResult<()> {
        match change {
            Change::Subscribe { channel, waiter, done } => {
                if !self.channels.contains_key(&channel)
                    && let Err(error) = in_time(sink.subscribe(&channel)).await
                {
                    let lost = error.is_unrecoverable_error();
                    let _ = done.send(Err(error.clone()));
                    return if lost { Err(error) } else { Ok(()) };
                }
                self.channels.entry(channel).or_default().push(waiter);
                let _ = done.send(Ok(()));
                Ok(())
            }
            Change::Unsubscribe { channel, id } => {
                if self.remove(&channel, id) {
                    in_time(sink.unsubscribe(&channel)).await?;
                }
                Ok(())
            }
        }
    }

    /// Removes a waiter, and returns whether it was the last one of its channel.
    fn remove(&mut self, channel: &str, id: u64) -> bool {
        let Some(waiters) = self.channels.get_mut(channel) else {
            return false;
        };
        waiters.retain(|waiter| waiter.id != id);
        let last = waiters.is_empty();
        if last {
            self.channels.remove(channel);
        }
        last
    }

    /// Notifies the waiters of a message's channel, at once or after the milliseconds that the
    /// message names.
    fn notify(&self, message: &Msg) {
        let delay = message.get_payload::<String>().ok().and_then(|text| text.parse().ok());
        let delay = delay.map(Duration::from_millis);
        for waiter in self.channels.get(message.get_channel_name()).into_iter().flatten() {
            let freed = waiter.freed.clone();
            match delay {
                None => freed.notify_one(),
                Some(delay) => drop(tokio::spawn(async move {
                    sleep(delay).await;
                    freed.notify_one();
                })),
            }
        }
    }

    /// Fails the subscriptions that were requested while there is no connection.
    fn fail_changes(&mut self, error: &RedisError, changes: &mut Changes) -> ControlFlow<()> {
        loop {
            match changes.try_recv() {
                Ok(Change::Subscribe { done, .. }) => {
                    let _ = done.send(Err(error.clone()));
                }
                Ok(Change::Unsubscribe { channel, id }) => {
                    self.remove(&channel, id);
                }
                Err(mpsc::error::TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(mpsc::error::TryRecvError::Disconnected) => return ControlFlow::Break(()),
            }
        }
    }
}

/// Treats a connection that doesn't answer in time as lost.
async fn in_time<T>(answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    timeout(ANSWER_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
}
