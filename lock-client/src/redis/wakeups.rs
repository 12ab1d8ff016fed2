//! The one connection over which all waiters of a client are notified of freed locks.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    mem,
    pin::pin,
    sync::{Arc, Mutex},
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
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    server::Server,
    settings::{TimeLimits, closed},
};
use crate::{backend::Wakeups, clock::Moment, retry::pauses, waiters::Waiters};

/// The longest pause before a lost connection is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often an idle connection is checked.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The subscriptions of a client. Their connection is made with the first one. It lasts as long as
/// the Tokio runtime in which it was made.
#[derive(Clone)]
pub(crate) struct Subscriptions {
    listening: Arc<Listening>,
    /// The task that listens. It may have ended with its runtime.
    task: Arc<Mutex<Option<AbortOnDropHandle<()>>>>,
}

struct Listening {
    server: Arc<Server>,
    limits: TimeLimits,
    waiters: Waiters,
    answers: watch::Sender<Answers>,
}

/// What Redis has answered.
#[derive(Default)]
struct Answers {
    /// The channels that it has confirmed on the present connection.
    confirmed: HashSet<String>,
    /// The channels that the user has no right to.
    rejected: HashMap<String, RedisError>,
    /// How often there was no connection, and why the last time.
    failures: u64,
    failure: Option<RedisError>,
}

impl Subscriptions {
    pub(crate) fn new(server: Arc<Server>, limits: TimeLimits) -> Self {
        let (waiters, answers) = Default::default();
        let listening = Arc::new(Listening { server, limits, waiters, answers });
        Self { listening, task: Arc::default() }
    }

    /// Subscribes to a channel. When this returns, Redis has confirmed it.
    pub(crate) async fn subscribe(&self, channel: String) -> RedisResult<Wakeups> {
        let Listening { waiters, answers, .. } = &*self.listening;
        let mut failures = 0;
        answers.send_if_modified(|answers| {
            failures = answers.failures;
            answers.rejected.remove(&channel).is_some()
        });
        let waiter = waiters.add(vec![channel.clone()]);
        self.start();
        let mut answers = answers.subscribe();
        let is_known = |answers: &Answers| {
            let Answers { confirmed, rejected, .. } = answers;
            answers.failures > failures
                || confirmed.contains(&channel)
                || rejected.contains_key(&channel)
        };
        let answers = answers.wait_for(is_known).await.map_err(|_| ended())?;
        match answers.rejected.get(&channel).or(answers.failure.as_ref()) {
            Some(error) if !answers.confirmed.contains(&channel) => Err(error.clone()),
            _ => Ok(Wakeups::new(waiter.freed.clone(), (waiter, self.clone()))),
        }
    }

    fn start(&self) {
        let mut task = self.task.lock().expect("nothing panics while it holds this");
        if task.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let listener = Listener(self.listening.clone());
            *task = Some(AbortOnDropHandle::new(tokio::spawn(listener.listen())));
        }
    }
}

/// Listens until this value is dropped.
struct Listener(Arc<Listening>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.fail(ended());
    }
}

impl Listener {
    /// Keeps a connection. Replaces it when it is lost.
    async fn listen(self) {
        let listening = &*self.0;
        let (mut backoff, mut earlier) = (pauses(LONGEST_PAUSE), HashSet::new());
        loop {
            // 1. While nobody waits, no connection is made.
            while listening.waiters.is_empty() {
                listening.waiters.changed().await;
            }
            // 2. Connect, and use the connection until it is lost.
            let used = match listening.server.connect_for_messages(listening.limits).await {
                Ok(connection) => {
                    let begun = Moment::now();
                    let used = listening.use_connection(connection, &mut earlier).await;
                    if begun.elapsed() > LONGEST_PAUSE {
                        backoff = pauses(LONGEST_PAUSE);
                    }
                    used
                }
                Err(error) => Err(error),
            };
            let Err(error) = used;
            tracing::debug!(%error, "there is no connection of the waiters");
            earlier.extend(listening.fail(error));
            // 3. Pause, and longer each time, unless the connection lasted.
            sleep(backoff.next().expect("the pauses never end")).await;
        }
    }
}

impl Listening {
    /// Fails the subscriptions that were requested and not made. Returns the channels of those that were
    /// made: they are made again over the next connection.
    fn fail(&self, error: RedisError) -> HashSet<String> {
        let mut confirmed = HashSet::new();
        self.answers.send_modify(|answers| {
            confirmed = mem::take(&mut answers.confirmed);
            answers.failures += 1;
            answers.failure = Some(error);
        });
        confirmed
    }

    /// Makes changes and forwards messages until the connection is lost. The waiters of earlier channels
    /// may have missed a message.
    async fn use_connection(
        &self,
        connection: PubSub,
        earlier: &mut HashSet<String>,
    ) -> RedisResult<Infallible> {
        let (mut sink, mut messages) = connection.split();
        loop {
            self.change_subscriptions(&sink, &mut messages, earlier).await?;
            loop {
                let changed = pin!(self.waiters.changed());
                match timeout(PING_INTERVAL, select(changed, messages.next())).await {
                    Ok(Either::Left(_)) => break,
                    Ok(Either::Right((message, _))) => self.notify(message)?,
                    // A connection that was cut silently looks like an idle one.
                    Err(_) => in_time(self.limits, sink.ping::<()>()).await?,
                }
            }
        }
    }

    /// Subscribes to all channels that have waiters and unsubscribes from the others, in one round trip.
    /// Meanwhile it forwards messages.
    async fn change_subscriptions(
        &self,
        sink: &PubSubSink,
        messages: &mut PubSubStream,
        earlier: &mut HashSet<String>,
    ) -> RedisResult<()> {
        let (mut wanted, mut unneeded) = (self.waiters.channels(), HashSet::new());
        earlier.retain(|channel| wanted.contains(channel));
        self.answers.send_if_modified(|Answers { confirmed, rejected, .. }| {
            unneeded = confirmed.difference(&wanted).cloned().collect();
            confirmed.retain(|channel| wanted.contains(channel));
            rejected.retain(|channel, _| wanted.contains(channel));
            wanted.retain(|it| !confirmed.contains(it) && !rejected.contains_key(it));
            // Nobody waits for a channel to be left.
            false
        });
        if wanted.is_empty() && unneeded.is_empty() {
            return Ok(());
        }
        // Sent first, because a channel may be wanted again.
        let unsubscribing = async {
            let unneeded: Vec<_> = unneeded.into_iter().collect();
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
        let mut errors = subscribed.iter().filter_map(|(_, subscribed)| subscribed.as_ref().err());
        if let Some(error) = errors.find(|error| error.is_unrecoverable_error()) {
            return Err(error.clone());
        }
        self.answers.send_modify(|answers| {
            for (channel, subscribed) in subscribed {
                if earlier.remove(&channel) {
                    self.waiters.notify(&channel);
                }
                match subscribed {
                    Ok(()) => drop(answers.confirmed.insert(channel)),
                    Err(error) => drop(answers.rejected.insert(channel, error)),
                }
            }
        });
        unsubscribed
    }

    /// Notifies the waiters of a message's channel, at once or after the milliseconds that the
    /// message names. Without a message, the connection is lost.
    fn notify(&self, message: Option<Msg>) -> RedisResult<()> {
        let message = message.ok_or_else(|| closed("the connection of the waiters was lost"))?;
        let (waiters, channel) = (self.waiters.clone(), message.get_channel_name().to_owned());
        match message.get_payload::<String>().ok().and_then(|text| text.parse().ok()) {
            None => waiters.notify(&channel),
            Some(delay_ms) => drop(tokio::spawn(async move {
                sleep(Duration::from_millis(delay_ms)).await;
                waiters.notify(&channel);
            })),
        }
        Ok(())
    }
}

fn ended() -> RedisError {
    closed("the connection for subscriptions has ended")
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
