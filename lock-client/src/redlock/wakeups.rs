//! Notifications that a lock was freed on a majority of the nodes.

use std::{collections::HashSet, sync::Arc};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redis::RedisResult;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::{majority::majority, node_error::NodeError};
use crate::{backend::Wakeups, redis::wakeups::Subscriptions};

/// An event on one node.
enum Event {
    Subscribed(usize, RedisResult<Wakeups>),
    Freed(usize, Wakeups),
}

/// The nodes that did not confirm the subscription.
type Unconfirmed = Vec<(usize, NodeError)>;

/// Subscribes on all nodes. Once this returns, a majority has confirmed the subscription, and every
/// release on a majority is notified.
///
/// # Errors
/// If so many nodes did not confirm that the others are no majority.
pub(super) async fn subscribe(
    nodes: &[Subscriptions],
    channel: String,
) -> Result<Wakeups, Unconfirmed> {
    let freed = Arc::new(Notify::new());
    let (report, confirmed) = oneshot::channel();
    let listening = listen(nodes.to_vec(), channel, freed.clone(), report);
    let listener = Listener(tokio::spawn(listening));
    match confirmed.await {
        Ok(Ok(())) => Ok(Wakeups::new(freed, listener)),
        Ok(Err(unconfirmed)) => Err(unconfirmed),
        Err(_) => Err(Vec::new()),
    }
}

/// The task that listens. It ends, with its subscriptions, when this value is dropped.
struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn listen(
    nodes: Vec<Subscriptions>,
    channel: String,
    freed: Arc<Notify>,
    report: oneshot::Sender<Result<(), Unconfirmed>>,
) {
    let majority = majority(nodes.len());
    let subscribe = |(node, subscriptions): (usize, &Subscriptions)| -> BoxFuture<'static, Event> {
        let (subscriptions, channel) = (subscriptions.clone(), channel.clone());
        Box::pin(async move { Event::Subscribed(node, subscriptions.subscribe(channel).await) })
    };
    let next = |node: usize, wakeups: Wakeups| -> BoxFuture<'static, Event> {
        Box::pin(async move {
            wakeups.next().await;
            Event::Freed(node, wakeups)
        })
    };
    let mut events: FuturesUnordered<_> = nodes.iter().enumerate().map(subscribe).collect();
    let mut report = Some(report);
    let (mut confirmed, mut unconfirmed) = (0, Vec::new());
    let mut freed_on = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Subscribed(node, Ok(wakeups)) => {
                confirmed += 1;
                events.push(next(node, wakeups));
            }
            Event::Subscribed(node, Err(error)) => {
                unconfirmed.push((node, NodeError::from(error)));
            }
            Event::Freed(node, wakeups) => {
                freed_on.insert(node);
                events.push(next(node, wakeups));
            }
        }
        if confirmed == majority
            && let Some(report) = report.take()
        {
            // The report fails if the waiter has gone; then this task ends as well.
            let _ = report.send(Ok(()));
        }
        if unconfirmed.len() > nodes.len() - majority {
            if let Some(report) = report.take() {
                let _ = report.send(Err(unconfirmed));
            }
            return;
        }
        if freed_on.len() >= majority {
            freed_on.clear();
            freed.notify_one();
        }
    }
}
