//! The watches by which waiters are notified.

use std::sync::Arc;
use std::time::Duration;

use fence::{Holder, ResourceName};
use tokio::{
    sync::{
        Notify,
        broadcast::{self, error::RecvError},
    },
    time::sleep,
};

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    messages::{Request, Watch, children},
    nodes::Nodes,
    view::{Part, View},
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
    changes: broadcast::Receiver<String>,
    /// It ends with the last of its users.
    _connection: Arc<Connection>,
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
            let has_changed = watched.has_changed().await;
            // The attempt shows whose turn it is, and needs no watch for that.
            if has_changed && watched.awaited == Awaited::Turn && self.owner_left(&watched.path) {
                self.freed.notify_one();
                // The attempt is faster without the next look. If it succeeds, the subscription ends. The
                // look shows all that happens meanwhile.
                sleep(TURN).await;
            }
            let before = watched.awaited;
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
        self.client.own_nodes.change(&self.name, holder, |own_node| {
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
        // Before the watch is set, so that no change is missed.
        let changes = connection.changes();
        let changes = changes.ok_or_else(|| self.client.unavailable("the connection has ended"));
        let changes = changes.map_err(Failure::Other)?;
        let (path, awaited) = loop {
            if let Some(set) = self.try_watch(&connection).await? {
                break set;
            }
        };
        Ok(Watched { path, awaited, changes, _connection: connection })
    }

    /// Sets a watch on what is seen; `None` if it was deleted meanwhile.
    async fn try_watch(
        &self,
        connection: &Connection,
    ) -> Result<Option<(String, Awaited)>, Failure> {
        let Some(holder) = &self.holder else { return self.watch_queue(connection).await };
        // A waiter that knows whom it waits for does not read the whole queue.
        let own_node = self.client.own_nodes.get(&self.name, holder);
        if let Some(before) = own_node.as_ref().and_then(|own_node| own_node.predecessor.as_ref())
            && before.exists(connection, Watch::Yes).await?
        {
            return Ok(Some((before.path.clone(), Awaited::Turn)));
        }
        let own_path = own_node.as_ref().map(|own_node| own_node.path.as_str());
        let view = View::read(connection, &self.nodes, Part::All, own_path).await?;
        let Some(own) = view.place(holder) else { return self.watch_queue(connection).await };
        match view.predecessor(holder) {
            Some(before) => {
                let is_set = before.exists(connection, Watch::Yes).await?;
                let set = is_set.then(|| (before.path.clone(), Awaited::Turn));
                self.client.own_nodes.change(&self.name, holder, |own_node| {
                    own_node.predecessor = Some(before);
                });
                Ok(set)
            }
            None => match connection.send(Request::get_data(&own.path, Watch::Yes)).await {
                Ok(_) => Ok(Some((own.path.clone(), Awaited::OwnEnd))),
                Err(Failure::NoNode) => Ok(None),
                Err(failure) => Err(failure),
            },
        }
    }

    async fn watch_queue(
        &self,
        connection: &Connection,
    ) -> Result<Option<(String, Awaited)>, Failure> {
        let queue = self.nodes.queue();
        match connection.send(Request::get_children(&queue, Watch::Yes)).await {
            Ok(answer) => Ok(Some((queue, Awaited::Any(children(&answer)?)))),
            // Without its container, the queue is empty. The watch is for the creation.
            Err(Failure::NoNode) => match connection.send(Request::watch_creation(&queue)).await {
                Err(Failure::NoNode) => Ok(Some((queue, Awaited::Any(Vec::new())))),
                Ok(_) => Ok(None),
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        }
    }
}

impl Watched {
    /// Waits for a change. Returns whether there was one, or the watch was lost.
    async fn has_changed(&mut self) -> bool {
        loop {
            match self.changes.recv().await {
                Ok(path) if path == self.path => return true,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            }
        }
    }
}
