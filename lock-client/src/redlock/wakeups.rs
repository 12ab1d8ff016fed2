//! Notifications that a lock was freed on a majority of the nodes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinHandle,
    time::sleep,
};

use super::{node_error::NodeError, nodes::Nodes};
use crate::{
    backend::{BackendError, Wakeups},
    redis::wakeups::Subscriptions,
};

/// How long after a failed subscription to new members the next is attempted.
const PAUSE: Duration = Duration::from_secs(1);

/// The nodes that did not confirm the subscription.
type Unconfirmed = Vec<(usize, NodeError)>;

/// Subscribes on all nodes, and on the new ones whenever the members change. Once this returns, a
/// majority has confirmed the subscription, and every release on a majority is notified.
///
/// # Errors
/// If so many nodes did not confirm that the others are no majority.
pub(super) async fn subscribe(
    current: watch::Receiver<Option<Arc<Nodes>>>,
    channel: String,
) -> Result<Wakeups, BackendError> {
    let freed = Arc::new(Notify::new());
    let (report, confirmed) = oneshot::channel();
    let listening = listen(current, channel, freed.clone(), report);
    let listener = Listener(tokio::spawn(listening));
    match confirmed.await {
        Ok(Ok(())) => Ok(Wakeups::new(freed, listener)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(BackendError::Unavailable("the runtime has ended".into())),
    }
}

/// The task that listens. It ends, with its subscriptions, when this value is dropped.
struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens to the nodes of the current roster. Reports whether the first subscription was made.
async fn listen(
    mut current: watch::Receiver<Option<Arc<Nodes>>>,
    channel: String,
    freed: Arc<Notify>,
    report: oneshot::Sender<Result<(), BackendError>>,
) {
    let mut report = Some(report);
    loop {
        let nodes = current.borrow_and_update().clone();
        let nodes = nodes.expect("the members were found before");
        let confirm = || match report.take() {
            // The report fails if the waiter has gone; then this task ends as well.
            Some(report) => drop(report.send(Ok(()))),
            // Until now, a release by the new members may have been missed.
            None => freed.notify_one(),
        };
        let unconfirmed = tokio::select! {
            unconfirmed = listen_to(&nodes, &channel, &freed, confirm) => unconfirmed,
            Ok(()) = current.changed() => continue,
        };
        if let Some(report) = report.take() {
            let _ = report.send(Err(nodes.no_majority(&unconfirmed)));
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Subscribes on these nodes, and notifies the waiter of each release. Calls `confirm` once a
/// majority has confirmed the subscription. Returns if none can.
async fn listen_to(
    nodes: &Nodes,
    channel: &str,
    freed: &Notify,
    confirm: impl FnOnce(),
) -> Unconfirmed {
    let majority = nodes.majority();
    let subscribe = |(node, subscriptions): (usize, Subscriptions)| {
        let channel = channel.to_owned();
        async move { (node, subscriptions.subscribe(channel).await) }
    };
    let next = |node: usize, wakeups: Wakeups| async move {
        wakeups.next().await;
        (node, wakeups)
    };
    let mut subscribing: FuturesUnordered<_> =
        nodes.subscriptions().into_iter().enumerate().map(subscribe).collect();
    let mut listening = FuturesUnordered::new();
    let mut confirm = Some(confirm);
    let mut unconfirmed = Vec::new();
    let mut freed_on = HashSet::new();
    while unconfirmed.len() <= nodes.len() - majority {
        tokio::select! {
            Some((node, subscribed)) = subscribing.next() => match subscribed {
                Ok(wakeups) => listening.push(next(node, wakeups)),
                Err(error) => unconfirmed.push((node, NodeError::from(error))),
            },
            Some((node, wakeups)) = listening.next() => {
                freed_on.insert(node);
                listening.push(next(node, wakeups));
            }
        }
        if listening.len() == majority
            && let Some(confirm) = confirm.take()
        {
            confirm();
        }
        if freed_on.len() >= majority {
            freed_on.clear();
            freed.notify_one();
        }
    }
    unconfirmed
}
