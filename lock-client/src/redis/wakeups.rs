//! The one connection over which all waiters of a client are notified of freed locks.

use std::{
    collections::{HashMap, HashSet},
    mem,
    pin::pin,
    sync::Arc,
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
use crate::{backend::Wakeups, clock::Moment, keeper::Keeper, retry::pauses, waiters::Waiters};

/// The longest pause before a lost connection is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often an idle connection is checked.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The subscriptions of a client. Their connection is made with the first one, and closed a little after the
/// last one. It may end earlier, with the Tokio runtime in which it was made.
#[derive(Clone)]
pub(crate) struct Subscriptions(Arc<Listening>);

struct Listening {
    server: Arc<Server>,
    limits: TimeLimits,
    waiters: Waiters,
    answers: watch::Sender<Answers>,
    /// The task that listens.
    keeper: Keeper,
}

/// What Redis has answered.
#[derive(Default)]
struct Answers {
    /// The channels that it has confirmed on the present connection.
    confirmed: HashSet<String>,
    /// Those of earlier connections. Their waiters may have missed a message.
    earlier: HashSet<String>,
    /// The channels that the user has no right to.
    rejected: HashMap<String, RedisError>,
    /// How often there was no connection, and why the last time.
    failures: u64,
    failure: Option<RedisError>,
}

impl Answers {
    /// Records that the connection is lost. Its subscriptions are made again over the next one.
    fn lose_connection(&mut self) {
        self.earlier.extend(mem::take(&mut self.confirmed));
    }

    /// Fails the subscriptions that were requested and not made.
    fn fail(&mut self, error: RedisError) {
        self.lose_connection();
        self.failures += 1;
        self.failure = Some(error);
    }
}

impl Subscriptions {
    pub(crate) fn new(server: Arc<Server>, limits: TimeLimits) -> Self {
        let (answers, keeper) = Default::default();
        let waiters = Waiters::with_changes();
        Self(Arc::new(Listening { server, limits, waiters, answers, keeper }))
    }

    /// Subscribes to a channel. When this returns, Redis has confirmed it.
    pub(crate) async fn subscribe(&self, channel: String) -> RedisResult<Wakeups> {
        let Listening { waiters, answers, keeper, .. } = &*self.0;
        let mut failures = 0;
        answers.send_if_modified(|answers| {
            failures = answers.failures;
            answers.rejected.remove(&channel).is_some()
        });
        let waiter = waiters.add(vec![channel.clone()]);
        let (mut answers, mut ends) = (answers.subscribe(), keeper.ends());
        let is_known = |answers: &Answers| {
            let Answers { confirmed, rejected, .. } = answers;
            answers.failures > failures
                || confirmed.contains(&channel)
                || rejected.contains_key(&channel)
        };
        let mut known = pin!(answers.wait_for(is_known));
        let answers = loop {
            self.start();
            if let Either::Left((known, _)) = select(known.as_mut(), pin!(ends.changed())).await {
                break known.expect("this value keeps the sender");
            }
        };
        if !answers.confirmed.contains(&channel)
            && let Some(error) = answers.rejected.get(&channel).or(answers.failure.as_ref())
        {
            return Err(error.clone());
        }
        drop(answers);
        // If the task ends with another waiter's runtime, this waiter starts the next task. The waiter is
        // notified when it is subscribed again, because it may have missed a message.
        let own = self.clone();
        let listening_again = async move {
            while ends.changed().await.is_ok() {
                own.start();
            }
        };
        let listening_again = AbortOnDropHandle::new(tokio::spawn(listening_again));
        Ok(Wakeups::new(waiter.freed.clone(), (waiter, listening_again)))
    }

    fn start(&self) {
        self.0.keeper.start(|| {
            // The connection of the last task is lost.
            self.0.answers.send_modify(Answers::lose_connection);
            listen(self.0.clone())
        });
    }
}

/// Keeps a connection as long as there are waiters, and replaces it when it is lost.
async fn listen(listening: Arc<Listening>) {
    let mut backoff = pauses(LONGEST_PAUSE);
    // 1. While nobody waits, no connection is made.
    while !listening.is_finished() {
        // 2. Connect, and use the connection until it is lost.
        let used = match listening.server.connect_for_messages(listening.limits).await {
            Ok(connection) => {
                let begun = Moment::now();
                let used = listening.use_connection(connection).await;
                if begun.elapsed() > LONGEST_PAUSE {
                    backoff = pauses(LONGEST_PAUSE);
                }
                used
            }
            Err(error) => Err(error),
        };
        let Err(error) = used else { return };
        tracing::debug!(%error, "there is no connection of the waiters");
        listening.answers.send_modify(|answers| answers.fail(error));
        // Otherwise the changes would pile up while Redis is away. The next connection looks at all channels.
        listening.take_changes();
        // 3. Pause, and longer each time, unless the connection lasted.
        sleep(backoff.next().expect("the pauses never end")).await;
    }
}

impl Listening {
    /// Returns whether nobody waits. Then the next waiter starts a new task.
    fn is_finished(&self) -> bool {
        self.keeper.end_if(|| self.waiters.is_empty())
    }

    /// Makes changes and forwards messages until the connection is lost, or nobody waits any more.
    async fn use_connection(&self, connection: PubSub) -> RedisResult<()> {
        let (mut sink, mut messages) = connection.split();
        self.waiters.mark_all_changed();
        loop {
            self.change_subscriptions(&sink, &mut messages).await?;
            loop {
                let changed = pin!(self.waiters.changed());
                match timeout(PING_INTERVAL, select(changed, messages.next())).await {
                    Ok(Either::Left(_)) => break,
                    Ok(Either::Right((message, _))) => self.notify(message)?,
                    Err(_) if self.is_finished() => return Ok(()),
                    // A connection that was cut silently looks like an idle one.
                    Err(_) => in_time(self.limits, sink.ping::<()>()).await?,
                }
            }
        }
    }

    /// Takes the channels to subscribe to, and those to unsubscribe from.
    fn take_changes(&self) -> (HashSet<String>, HashSet<String>) {
        let (mut wanted, mut unneeded) = (HashSet::new(), HashSet::new());
        self.answers.send_if_modified(|Answers { confirmed, rejected, earlier, .. }| {
            // The waiters are read under the lock of the answers. So a waiter that finds its channel confirmed
            // was added before, and the channel is not left.
            (wanted, unneeded) = self.waiters.take_changed();
            unneeded.retain(|channel| {
                rejected.remove(channel);
                earlier.remove(channel);
                confirmed.remove(channel)
            });
            wanted.retain(|it| !confirmed.contains(it) && !rejected.contains_key(it));
            // Nobody waits for a channel to be left.
            false
        });
        (wanted, unneeded)
    }

    /// Subscribes to channels that have got waiters and unsubscribes from those without, in one round trip.
    /// Meanwhile it forwards messages.
    async fn change_subscriptions(
        &self,
        sink: &PubSubSink,
        messages: &mut PubSubStream,
    ) -> RedisResult<()> {
        let (wanted, unneeded) = self.take_changes();
        if wanted.is_empty() && unneeded.is_empty() {
            return Ok(());
        }
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
                if answers.earlier.remove(&channel) {
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

/// Treats a connection that doesn't answer in time as lost.
async fn in_time<T>(
    limits: TimeLimits,
    answer: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    timeout(limits.subscribing(), answer)
        .await
        .unwrap_or_else(|_| Err(closed("the connection of the waiters answers nothing")))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use testbed::Redis;
    use tokio::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn subscriptions(url: &str) -> Subscriptions {
        Subscriptions::new(Arc::new(Server::open(url).unwrap()), TimeLimits::default())
    }

    /// The second waiter is added while the task looks which channels have no waiter any more. It finds the
    /// channel confirmed, so a release that comes while the channel is left would be missed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn channel_is_not_left_while_a_waiter_follows_another() {
        let redis = Redis::start().await.unwrap();
        let subscriptions = subscriptions(&redis.url());
        let waiters = &subscriptions.0.waiters;
        let first = subscriptions.subscribe("freed".to_owned()).await.unwrap();
        // 1. The task looks, and waits for the answers. The pause only gives it the time to get there.
        let answers = subscriptions.0.answers.borrow();
        drop(first);
        thread::sleep(Duration::from_millis(100));
        // 2. The second waiter is added, and the task goes on.
        let second = waiters.add(vec!["freed".to_owned()]);
        drop(answers);
        // 3. What was to be left is left before another channel is confirmed.
        let other = subscriptions.subscribe("other".to_owned()).await.unwrap();
        let mut connection = testbed::redis::connect(redis.url()).await.unwrap();
        let mut left = async || {
            let mut info = redis::cmd("INFO");
            let counts: String =
                info.arg("commandstats").query_async(&mut connection).await.unwrap();
            counts.contains("cmdstat_unsubscribe:")
        };
        assert!(!left().await, "it was left");
        // The control: without a waiter, it is left.
        drop((second, other));
        timeout(SOON, async { while !left().await {} }).await.unwrap();
    }

    #[tokio::test]
    async fn waiter_of_another_runtime_subscribes_again_and_is_notified() {
        let redis = Redis::start().await.unwrap();
        let subscriptions = subscriptions(&redis.url());
        let ending = tokio::runtime::Runtime::new().unwrap();
        let first = ending.spawn({
            let subscriptions = subscriptions.clone();
            async move { subscriptions.subscribe("freed".to_owned()).await }
        });
        let _first = first.await.unwrap().unwrap();
        let second = subscriptions.subscribe("freed".to_owned()).await.unwrap();
        let notified = timeout(Duration::from_millis(100), second.next()).await;
        assert!(notified.is_err(), "the control");
        ending.shutdown_background();
        timeout(SOON, second.next()).await.expect("it is notified");
        // A release that follows its next try is notified, too. The connection of the first waiter may still
        // be open.
        let mut connection = testbed::redis::connect(redis.url()).await.unwrap();
        let mut publish = redis::cmd("PUBLISH");
        let published = publish.arg("freed").arg("").query_async::<u64>(&mut connection).await;
        assert_ne!(published.unwrap(), 0, "it has subscribed again");
        timeout(SOON, second.next()).await.expect("it is notified again");
    }

    /// The first connection hangs, and the task with it.
    #[tokio::test]
    async fn waiter_that_waits_for_a_task_that_ends_starts_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let subscriptions = subscriptions(&format!("redis://{}", listener.local_addr().unwrap()));
        let ending = tokio::runtime::Runtime::new().unwrap();
        let subscribe = |subscriptions: Subscriptions| async move {
            let _ = subscriptions.subscribe("freed".to_owned()).await;
        };
        let _first = ending.spawn(subscribe(subscriptions.clone()));
        let _hangs = listener.accept().await.unwrap();
        let _second = AbortOnDropHandle::new(tokio::spawn(subscribe(subscriptions)));
        tokio::task::yield_now().await;
        ending.shutdown_background();
        timeout(SOON, listener.accept()).await.expect("it connects").unwrap();
    }

    #[tokio::test]
    async fn connection_is_closed_after_the_last_waiter_and_made_again() {
        let redis = Redis::start().await.unwrap();
        let subscriptions = subscriptions(&redis.url());
        drop(subscriptions.subscribe("freed".to_owned()).await.unwrap());
        let mut connection = testbed::redis::connect(redis.url()).await.unwrap();
        let mut clients = async || {
            let mut list = redis::cmd("CLIENT");
            let list: String = list.arg("LIST").query_async(&mut connection).await.unwrap();
            list.lines().count()
        };
        assert_eq!(clients().await, 2, "the control");
        timeout(SOON, async { while clients().await > 1 {} }).await.expect("it stays open");
        let _again = subscriptions.subscribe("freed".to_owned()).await.unwrap();
        assert_eq!(clients().await, 2);
    }
}
