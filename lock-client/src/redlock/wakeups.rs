//! Hearing of a lock that was freed on a majority of the nodes.

use std::{collections::HashSet, sync::Arc};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redis::RedisResult;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::{node::Absence, tally::majority};
use crate::{backend::Wakeups, redis::wakeups::Subscriptions};

/// What comes of one node's subscription.
enum News {
    Subscribed(usize, RedisResult<Wakeups>),
    Freed(usize, Wakeups),
}

/// Subscribes on all nodes. When this is answered, a majority has confirmed it; whoever is freed on a
/// majority from then on is heard of.
///
/// # Errors
/// The nodes that did not confirm it, if they leave no majority.
pub(super) async fn subscribe(
    nodes: &[Subscriptions],
    channel: String,
) -> Result<Wakeups, Vec<(usize, Absence)>> {
    let freed = Arc::new(Notify::new());
    let (tell, confirmed) = oneshot::channel();
    let listening = listen(nodes.to_vec(), channel, freed.clone(), tell);
    let listening = Listening(tokio::spawn(listening));
    match confirmed.await {
        Ok(Ok(())) => Ok(Wakeups::new(freed, listening)),
        Ok(Err(absent)) => Err(absent),
        Err(_) => Err(Vec::new()),
    }
}

/// Ends the subscriptions when it is dropped.
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn listen(
    nodes: Vec<Subscriptions>,
    channel: String,
    freed: Arc<Notify>,
    tell: oneshot::Sender<Result<(), Vec<(usize, Absence)>>>,
) {
    let majority = majority(nodes.len());
    let subscribe = |(node, subscriptions): (usize, &Subscriptions)| -> BoxFuture<'static, News> {
        let (subscriptions, channel) = (subscriptions.clone(), channel.clone());
        Box::pin(async move { News::Subscribed(node, subscriptions.subscribe(channel).await) })
    };
    let next = |node: usize, wakeups: Wakeups| -> BoxFuture<'static, News> {
        Box::pin(async move {
            wakeups.next().await;
            News::Freed(node, wakeups)
        })
    };
    let mut news: FuturesUnordered<_> = nodes.iter().enumerate().map(subscribe).collect();
    let mut tell = Some(tell);
    let (mut confirmed, mut absent) = (0, Vec::new());
    let mut freed_on = HashSet::new();
    while let Some(heard) = news.next().await {
        match heard {
            News::Subscribed(node, Ok(wakeups)) => {
                confirmed += 1;
                news.push(next(node, wakeups));
            }
            News::Subscribed(node, Err(error)) => absent.push((node, Absence::from(error))),
            News::Freed(node, wakeups) => {
                freed_on.insert(node);
                news.push(next(node, wakeups));
            }
        }
        if confirmed == majority
            && let Some(tell) = tell.take()
        {
            let _ = tell.send(Ok(()));
        }
        if absent.len() > nodes.len() - majority {
            if let Some(tell) = tell.take() {
                let _ = tell.send(Err(absent));
            }
            return;
        }
        if freed_on.len() >= majority {
            freed_on.clear();
            freed.notify_one();
        }
    }
}
