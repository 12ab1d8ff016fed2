//! The watches by which waiters are notified.

use std::{sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use tokio::{select, sync::Notify, time::sleep};
use zookeeper_client::{EventType, OneshotWatcher};

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    nodes::Nodes,
    view::{Predecessor, View},
};
use crate::{
    backend::{BackendError, Wakeups},
    background::AbortOnDrop,
    retry::pauses,
    terms::Order,
};

/// The longest pause before a lost watch is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a waiter whose turn it is may try before its subscription reads the queue again.
const TURN: Duration = Duration::from_millis(100);

/// Subscribes to what a waiter waits for.
pub(super) async fn subscribe(
    client: &ZooKeeper,
    name: &ResourceName,
    holder: &Holder,
    order: Order,
) -> Result<Wakeups, BackendError> {
    let freed = Arc::new(Notify::new());
    let waiter = Waiter {
        client: client.clone(),
        name: name.clone(),
        nodes: client.nodes(name),
        holder: (order == Order::Fair).then(|| holder.clone()),
        freed: freed.clone(),
    };
    let watched = waiter.watch().await?;
    let task = tokio::spawn(waiter.follow(watched));
    Ok(Wakeups::new(freed, AbortOnDrop::from(task)))
}

/// A subscription.
struct Waiter {
    client: ZooKeeper,
    name: ResourceName,
    nodes: Nodes,
    /// The holder of a place in the queue.
    holder: Option<Holder>,
    freed: Arc<Notify>,
}

/// A watch that is set.
struct Watched {
    path: String,
    awaited: Awaited,
    watcher: OneshotWatcher,
    /// It ends with the last of its users.
    connection: Arc<Connection>,
}

/// What a waiter waits for.
#[derive(Debug, PartialEq, Eq)]
enum Awaited {
    /// The node before the own one is deleted.
    Turn,
    /// The own node is deleted. It is the oldest.
    OwnEnd,
    /// One of these nodes is deleted.
    Any(Vec<String>),
}

impl Waiter {
    /// Notifies the waiter, again and again. Each step begins with what ZooKeeper shows. So it doesn't
    /// matter how a watch ends: with a change, or because it was lost.
    async fn follow(self, mut watched: Watched) {
        let mut pauses = pauses(LONGEST_PAUSE);
        loop {
            if watched.awaited == Awaited::OwnEnd {
                self.freed.notify_one();
            }
            let Watched { path, awaited: before, watcher, connection } = watched;
            let has_changed = has_changed(watcher, &connection).await;
            // The attempt shows whose turn it is, and needs no watch for that.
            if has_changed && before == Awaited::Turn && self.owner_left(&path) {
                self.freed.notify_one();
                // The attempt is faster without the next look. If it succeeds, the subscription ends. The
                // look shows all that happens meanwhile.
                sleep(TURN).await;
            }
            if has_changed {
                pauses = self::pauses(LONGEST_PAUSE);
            } else {
                sleep(pauses.next().expect("the pauses never end")).await;
            }
            watched = loop {
                if let Ok(watched) = self.watch().await {
                    break watched;
                }
                sleep(pauses.next().expect("the pauses never end")).await;
            };
            // After the watch was set: a waiter that tries now sees all that the watch leaves out.
            let may_be_free = match (&before, &watched.awaited) {
                (Awaited::Any(before), Awaited::Any(now)) if has_changed => {
                    before.iter().any(|node| !now.contains(node))
                }
                (_, Awaited::Any(_)) => true,
                _ => false,
            };
            if may_be_free {
                self.freed.notify_one();
            }
        }
    }

    /// Remembers that the place before the holder's is gone. Returns whether that was the owner's, unless
    /// the owner has moved.
    fn owner_left(&self, gone: &str) -> bool {
        let Some(holder) = &self.holder else { return false };
        let mut has_left = false;
        self.client.shared.own_nodes.change(&self.name, holder, |own_node| {
            if let Some(before) = own_node.predecessor.as_mut().filter(|before| before.path == gone)
            {
                before.is_gone = true;
                has_left = before.ahead == 0;
            }
        });
        has_left
    }

    /// Sets a watch, and returns when the member has it.
    async fn watch(&self) -> Result<Watched, Failure> {
        let connection = self.client.ensemble.reading().await?;
        loop {
            if let Some((path, awaited, watcher)) = self.try_watch(&connection).await? {
                return Ok(Watched { path, awaited, watcher, connection });
            }
        }
    }

    /// Sets a watch on what is seen; `None` if it was deleted meanwhile.
    async fn try_watch(
        &self,
        connection: &Connection,
    ) -> Result<Option<(String, Awaited, OneshotWatcher)>, Failure> {
        let Some(holder) = &self.holder else { return self.watch_queue(connection).await };
        // A waiter that knows whom it waits for does not read the whole queue.
        let own_node = self.client.shared.own_nodes.get(&self.name, holder);
        if let Some(before) = own_node.as_ref().and_then(|own_node| own_node.predecessor.as_ref())
            && let Some(watcher) = watch_place(before, connection).await?
        {
            return Ok(Some((before.path.clone(), Awaited::Turn, watcher)));
        }
        let own_path = own_node.as_ref().map(|own_node| own_node.path.as_str());
        let view = View::read(connection, &self.nodes, own_path).await?;
        let Some(own) = view.place(holder) else { return self.watch_queue(connection).await };
        match view.predecessor(holder) {
            Some(before) => {
                let watcher = watch_place(&before, connection).await?;
                let path = before.path.clone();
                self.client.shared.own_nodes.change(&self.name, holder, |own_node| {
                    own_node.predecessor = Some(before);
                });
                Ok(watcher.map(|watcher| (path, Awaited::Turn, watcher)))
            }
            None => {
                let watching = connection.client.get_and_watch_data(&own.path);
                match connection.answer(watching).await {
                    Ok((_, _, watcher)) => Ok(Some((own.path.clone(), Awaited::OwnEnd, watcher))),
                    Err(Failure::NoNode) => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        }
    }

    async fn watch_queue(
        &self,
        connection: &Connection,
    ) -> Result<Option<(String, Awaited, OneshotWatcher)>, Failure> {
        let queue = self.nodes.queue();
        match connection.answer(connection.client.list_and_watch_children(&queue)).await {
            Ok((children, watcher)) => Ok(Some((queue, Awaited::Any(children), watcher))),
            // Without its container, the queue is empty. The watch is for the creation.
            Err(Failure::NoNode) => {
                let watching = connection.client.check_and_watch_stat(&queue);
                match connection.answer(watching).await? {
                    (None, watcher) => Ok(Some((queue, Awaited::Any(Vec::new()), watcher))),
                    (Some(_), _) => Ok(None),
                }
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Sets a watch on a place; `None` if it is gone.
async fn watch_place(
    place: &Predecessor,
    connection: &Connection,
) -> Result<Option<OneshotWatcher>, Failure> {
    if place.is_gone {
        return Ok(None);
    }
    match connection.answer(connection.client.get_and_watch_data(&place.path)).await {
        Ok((_, stat, watcher)) => Ok(place.is_at(&stat).then_some(watcher)),
        Err(Failure::NoNode) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Waits for a change. Returns whether there was one, or the watch was lost.
async fn has_changed(watcher: OneshotWatcher, connection: &Connection) -> bool {
    select! {
        // A watch panics if its connection has ended.
        biased;
        () = connection.ended() => false,
        event = watcher.changed() => event.event_type != EventType::Session,
    }
}
