//! The one connection over which all waiters of a client hear of locks that were freed.

use std::{
    collections::HashMap,
    io,
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use redis::{
    RedisError,
    aio::{PubSub, PubSubSink},
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{sleep, timeout},
};

use super::server::Server;
use crate::backend::{BackendError, Wakeups};

/// How long to wait before a lost connection is made again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How often to make sure of a connection over which nothing comes.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The subscriptions of a client. Their connection is made with the first, and kept as long as the
/// runtime goes on in which that was.
#[derive(Clone)]
pub(crate) struct Subscriptions {
    server: Arc<Server>,
    changes: Arc<Mutex<Option<mpsc::UnboundedSender<Change>>>>,
    next_id: Arc<AtomicU64>,
}

enum Change {
    Subscribe { channel: String, listener: Listener, done: oneshot::Sender<Result<(), RedisError>> },
    Unsubscribe { channel: String, id: u64 },
}

struct Listener {
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
        // If nobody takes it, the connection has gone, and its subscriptions with it.
        let _ = self.changes.send(Change::Unsubscribe { channel, id: self.id });
    }
}

impl Subscriptions {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server, changes: Arc::default(), next_id: Arc::default() }
    }

    /// Subscribes to a channel: when this is answered, Redis has confirmed it.
    pub(crate) async fn subscribe(&self, channel: String) -> Result<Wakeups, BackendError> {
        let changes = self.changes();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let freed = Arc::new(Notify::new());
        let listener = Listener { id, freed: freed.clone() };
        let (done, confirmed) = oneshot::channel();
        let gone = || BackendError::Unavailable("its connection has gone".into());
        let subscribe = Change::Subscribe { channel: channel.clone(), listener, done };
        let subscription = Subscription { channel, id, changes: changes.clone() };
        changes.send(subscribe).map_err(|_| gone())?;
        confirmed.await.map_err(|_| gone())??;
        Ok(Wakeups::new(freed, subscription))
    }

    /// Where to send changes to. If what took them has ended with its runtime, it begins anew in this.
    fn changes(&self) -> mpsc::UnboundedSender<Change> {
        let mut changes = self.changes.lock().expect("nothing panics while it has this");
        match &*changes {
            Some(open) if !open.is_closed() => open.clone(),
            _ => {
                let (sender, incoming) = mpsc::unbounded_channel();
                let connection =
                    Connection { server: self.server.clone(), channels: HashMap::new() };
                tokio::spawn(connection.serve(incoming));
                changes.insert(sender).clone()
            }
        }
    }
}

/// What serves the subscriptions, as a task of its own.
struct Connection {
    server: Arc<Server>,
    channels: HashMap<String, Vec<Listener>>,
}

type Changes = mpsc::UnboundedReceiver<Change>;

impl Connection {
    /// Serves until nobody can subscribe any more, over one connection after another.
    async fn serve(mut self, mut changes: Changes) {
        loop {
            match self.server.listen().await {
                Ok(connection) => match self.serve_over(connection, &mut changes).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, "lost the connection of the waiters"),
                },
                Err(error) => {
                    if self.refuse(&error, &mut changes).is_break() {
                        return;
                    }
                }
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Serves until the connection is lost, or nobody can subscribe any more.
    async fn serve_over(
        &mut self,
        connection: PubSub,
        changes: &mut Changes,
    ) -> Result<(), RedisError> {
        let (mut sink, mut messages) = connection.split();
        self.resubscribe(&mut sink).await?;
        loop {
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => self.apply(change, &mut sink).await?,
                    None => return Ok(()),
                },
                message = messages.next() => match message {
                    Some(message) => self.wake(message.get_channel_name()),
                    None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                },
                // A connection that was cut without a word looks like one over which nothing comes.
                () = sleep(PING_INTERVAL) => answered(sink.ping::<()>()).await?,
            }
        }
    }

    /// What was published meanwhile was missed, so everybody looks for themselves.
    async fn resubscribe(&mut self, sink: &mut PubSubSink) -> Result<(), RedisError> {
        if !self.channels.is_empty() {
            answered(sink.subscribe(self.channels.keys().collect::<Vec<_>>())).await?;
        }
        for listener in self.channels.values().flatten() {
            listener.freed.notify_one();
        }
        Ok(())
    }

    async fn apply(&mut self, change: Change, sink: &mut PubSubSink) -> Result<(), RedisError> {
        match change {
            Change::Subscribe { channel, listener, done } => {
                if !self.channels.contains_key(&channel)
                    && let Err(error) = answered(sink.subscribe(&channel)).await
                {
                    let lost = error.is_unrecoverable_error();
                    let _ = done.send(Err(error.clone()));
                    return if lost { Err(error) } else { Ok(()) };
                }
                self.channels.entry(channel).or_default().push(listener);
                let _ = done.send(Ok(()));
                Ok(())
            }
            Change::Unsubscribe { channel, id } => {
                if self.remove(&channel, id) {
                    answered(sink.unsubscribe(&channel)).await?;
                }
                Ok(())
            }
        }
    }

    /// Removes a listener, and tells whether it was its channel's last.
    fn remove(&mut self, channel: &str, id: u64) -> bool {
        let Some(listeners) = self.channels.get_mut(channel) else {
            return false;
        };
        listeners.retain(|listener| listener.id != id);
        let last = listeners.is_empty();
        if last {
            self.channels.remove(channel);
        }
        last
    }

    fn wake(&self, channel: &str) {
        for listener in self.channels.get(channel).into_iter().flatten() {
            listener.freed.notify_one();
        }
    }

    /// While there is no connection, nobody can subscribe.
    fn refuse(&mut self, error: &RedisError, changes: &mut Changes) -> ControlFlow<()> {
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

/// A connection that doesn't answer in time is lost.
async fn answered<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    timeout(ANSWER_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
}
