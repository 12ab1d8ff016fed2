//! The one connection over which all waiters of a client are notified of freed locks.

use std::{
    collections::HashMap,
    mem,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{Either, join, join_all, select},
};
use redis::{
    Msg, RedisError, RedisResult,
    aio::{PubSub, PubSubSink, PubSubStream},
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    server::Server,
    settings::{TimeLimits, closed},
};
use crate::{backend::Wakeups, clock::Moment, retry::pauses};

/// The longest pause before a lost connection is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often an idle connection is checked.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The subscriptions of a client. Their connection is made with the first one. It lasts as long as
/// the Tokio runtime in which it was made.
#[derive(Clone)]
pub(crate) struct Subscriptions {
    server: Arc<Server>,
    limits: TimeLimits,
    changes: Arc<Mutex<Option<mpsc::UnboundedSender<Change>>>>,
    next_id: Arc<AtomicU64>,
}

enum Change {
    Subscribe {
        channel: String,
        id: u64,
        freed: Arc<Notify>,
        done: oneshot::Sender<RedisResult<()>>,
    },
    Unsubscribe {
        channel: String,
        id: u64,
    },
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
    pub(crate) fn new(server: Arc<Server>, limits: TimeLimits) -> Self {
        Self { server, limits, changes: Arc::default(), next_id: Arc::default() }
    }

    /// Subscribes to a channel. When this returns, Redis has confirmed it.
    pub(crate) async fn subscribe(&self, channel: String) -> RedisResult<Wakeups> {
        let changes = self.changes();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let freed = Arc::new(Notify::new());
        let (done, confirmed) = oneshot::channel();
        let ended = || closed("the connection for subscriptions has ended");
        let subscribe =
            Change::Subscribe { channel: channel.clone(), id, freed: freed.clone(), done };
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
                tokio::spawn(SubscriptionTask::new(self.server.clone(), self.limits).run(incoming));
                changes.insert(sender).clone()
            }
        }
    }
}

/// The task that keeps the connection and its subscriptions.
struct SubscriptionTask {
    server: Arc<Server>,
    limits: TimeLimits,
    channels: HashMap<String, Channel>,
    /// The channels to subscribe to, as far as they still have waiters.
    wanted: Vec<String>,
    /// The channels that have lost their last waiter.
    unneeded: Vec<String>,
}

#[derive(Default)]
struct Channel {
    /// Whether Redis has confirmed it on the present connection.
    is_confirmed: bool,
    waiters: Vec<Waiter>,
}

struct Waiter {
    id: u64,
    freed: Arc<Notify>,
    /// Reports that the subscription is made. `None` once it was.
    done: Option<oneshot::Sender<RedisResult<()>>>,
}

type Changes = mpsc::UnboundedReceiver<Change>;

impl SubscriptionTask {
    fn new(server: Arc<Server>, limits: TimeLimits) -> Self {
        let (channels, wanted, unneeded) = Default::default();
        Self { server, limits, channels, wanted, unneeded }
    }

    /// Keeps a connection until the last sender of changes is dropped. Replaces it when it is lost.
    async fn run(mut self, mut changes: Changes) {
        let mut backoff = pauses(LONGEST_PAUSE);
        loop {
            // 1. While nobody waits, no connection is made.
            self.record_all(&mut changes);
            while self.channels.is_empty() {
                match changes.recv().await {
                    Some(change) => self.record(change),
                    None => return,
                }
            }
            // 2. Connect, and use the connection until it is lost.
            let used = match self.server.connect_for_messages(self.limits).await {
                Ok(connection) => {
                    let begun = Moment::now();
                    let used = self.use_connection(connection, &mut changes).await;
                    if begun.elapsed() > LONGEST_PAUSE {
                        backoff = pauses(LONGEST_PAUSE);
                    }
                    used
                }
                Err(error) => Err(error),
            };
            let Err(error) = used else { return };
            tracing::debug!(%error, "there is no connection of the waiters");
            self.fail_unconfirmed(&error);
            // 3. Pause, and longer each time, unless the connection lasted.
            sleep(backoff.next().expect("the pauses never end")).await;
        }
    }

    /// Makes changes and forwards messages until the connection is lost, or until the last sender
    /// of changes is dropped.
    async fn use_connection(
        &mut self,
        connection: PubSub,
        changes: &mut Changes,
    ) -> RedisResult<()> {
        let (mut sink, mut messages) = connection.split();
        for channel in self.channels.values_mut() {
            channel.is_confirmed = false;
        }
        self.wanted = self.channels.keys().cloned().collect();
        self.unneeded.clear();
        loop {
            self.record_all(changes);
            if !(self.wanted.is_empty() && self.unneeded.is_empty()) {
                self.change_subscriptions(&sink, &mut messages).await?;
            }
            let change = pin!(changes.recv());
            match timeout(PING_INTERVAL, select(change, messages.next())).await {
                Ok(Either::Left((Some(change), _))) => self.record(change),
                Ok(Either::Left((None, _))) => return Ok(()),
                Ok(Either::Right((message, _))) => self.notify(message)?,
                // A connection that was cut silently looks like an idle one.
                Err(_) => in_time(self.limits, sink.ping::<()>()).await?,
            }
        }
    }

    /// Subscribes to all wanted channels and unsubscribes from all that are not needed, in one
    /// round trip. Meanwhile it forwards messages.
    async fn change_subscriptions(
        &mut self,
        sink: &PubSubSink,
        messages: &mut PubSubStream,
    ) -> RedisResult<()> {
        let (unneeded, mut wanted) = (mem::take(&mut self.unneeded), mem::take(&mut self.wanted));
        wanted.retain(|channel| self.channels.contains_key(channel));
        // Sent first, because a channel may be wanted again.
        let unsubscribing = async {
            if unneeded.is_empty() { Ok(()) } else { sink.clone().unsubscribe(unneeded).await }
        };
        // A command for each channel, because Redis rejects a command as a whole.
        let subscribing = join_all(wanted.into_iter().map(|channel| async move {
            let subscribed = sink.clone().subscribe(&channel).await;
            (channel, subscribed)
        }));
        let mut answers =
            pin!(in_time(self.limits, async { Ok(join(unsubscribing, subscribing).await) }));
        let (unsubscribed, subscribed) = loop {
            match select(answers.as_mut(), messages.next()).await {
                Either::Left((answers, _)) => break answers?,
                Either::Right((message, _)) => self.notify(message)?,
            }
        };
        for (channel, subscribed) in subscribed {
            match subscribed {
                Ok(()) => self.confirm(&channel),
                Err(error) if error.is_unrecoverable_error() => return Err(error),
                Err(error) => self.reject(&channel, &error),
            }
        }
        unsubscribed
    }

    /// Records a change, which the next round trip makes.
    fn record(&mut self, change: Change) {
        match change {
            Change::Subscribe { channel, id, freed, done } => {
                let entry = self.channels.entry(channel.clone()).or_insert_with(|| {
                    self.wanted.push(channel);
                    Channel::default()
                });
                let mut waiter = Waiter { id, freed, done: Some(done) };
                if entry.is_confirmed {
                    waiter.report(Ok(()));
                }
                entry.waiters.push(waiter);
            }
            Change::Unsubscribe { channel, id } => {
                let Some(entry) = self.channels.get_mut(&channel) else { return };
                entry.waiters.retain(|waiter| waiter.id != id);
                if entry.waiters.is_empty() {
                    self.channels.remove(&channel);
                    self.unneeded.push(channel);
                }
            }
        }
    }

    fn record_all(&mut self, changes: &mut Changes) {
        while let Ok(change) = changes.try_recv() {
            self.record(change);
        }
    }

    fn confirm(&mut self, channel: &str) {
        let Some(channel) = self.channels.get_mut(channel) else { return };
        channel.is_confirmed = true;
        for waiter in &mut channel.waiters {
            if !waiter.report(Ok(())) {
                // It was subscribed over a connection that was lost, and may have missed a message.
                waiter.freed.notify_one();
            }
        }
    }

    /// Ends the subscriptions to a channel that the user has no right to.
    fn reject(&mut self, channel: &str, error: &RedisError) {
        for mut waiter in self.channels.remove(channel).unwrap_or_default().waiters {
            waiter.report(Err(error.clone()));
            waiter.freed.notify_one();
        }
    }

    /// Fails the subscriptions that were requested and not made. The others are made again over the
    /// next connection.
    fn fail_unconfirmed(&mut self, error: &RedisError) {
        self.channels.retain(|_, channel| {
            channel.waiters.retain_mut(|waiter| !waiter.report(Err(error.clone())));
            !channel.waiters.is_empty()
        });
    }

    /// Notifies the waiters of a message's channel, at once or after the milliseconds that the
    /// message names. Without a message, the connection is lost.
    fn notify(&self, message: Option<Msg>) -> RedisResult<()> {
        let message = message.ok_or_else(|| closed("the connection of the waiters was lost"))?;
        let delay = message.get_payload::<String>().ok().and_then(|text| text.parse().ok());
        let delay = delay.map(Duration::from_millis);
        let channel = self.channels.get(message.get_channel_name());
        for waiter in channel.into_iter().flat_map(|channel| &channel.waiters) {
            let freed = waiter.freed.clone();
            match delay {
                None => freed.notify_one(),
                Some(delay) => drop(tokio::spawn(async move {
                    sleep(delay).await;
                    freed.notify_one();
                })),
            }
        }
        Ok(())
    }
}

impl Waiter {
    /// Reports the outcome of the subscription, and returns whether it was still open.
    fn report(&mut self, outcome: RedisResult<()>) -> bool {
        match self.done.take() {
            Some(done) => {
                // The waiter may have gone.
                let _ = done.send(outcome);
                true
            }
            None => false,
        }
    }
}

/// Treats a connection that doesn't answer in time as lost.
async fn in_time<T>(
    limits: TimeLimits,
    answer: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    timeout(limits.subscribing(), answer)
        .await
        .unwrap_or_else(|_| Err(closed("the connection of the waiters answers nothing")))
}
