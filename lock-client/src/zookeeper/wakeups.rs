//! The watches by which waiters are notified.

use std::sync::Arc;

use fence::{Holder, ResourceName};
use tokio::{select, sync::Notify};
use tokio_util::task::AbortOnDropHandle;
use zookeeper_client::{EventType, OneshotWatcher};

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    paths::Paths,
    view::{Before, View},
};
use crate::{
    backend::{BackendError, Wakeups},
    follow::{Change, Watcher, follow},
    terms::Order,
};

pub(super) async fn subscribe(
    zookeeper: &ZooKeeper,
    name: &ResourceName,
    holder: &Holder,
    order: Order,
) -> Result<Wakeups, BackendError> {
    let freed = Arc::new(Notify::new());
    let waiter = Waiter {
        zookeeper: zookeeper.clone(),
        name: name.clone(),
        paths: zookeeper.paths(name),
        holder: (order == Order::Fair).then(|| holder.clone()),
        freed: freed.clone(),
    };
    let watched = waiter.watch().await?;
    if watched.awaited == Awaited::OwnEnd {
        waiter.freed.notify_one();
    }
    let task = tokio::spawn(follow(waiter, watched));
    Ok(Wakeups::new(freed, AbortOnDropHandle::new(task)))
}

struct Waiter {
    zookeeper: ZooKeeper,
    name: ResourceName,
    paths: Paths,
    /// The holder of a place in the queue.
    holder: Option<Holder>,
    freed: Arc<Notify>,
}

struct Watched {
    awaited: Awaited,
    /// `None` when it has ended.
    watcher: Option<OneshotWatcher>,
    /// It ends with the last of its users.
    connection: Arc<Connection>,
}

#[derive(Debug, PartialEq, Eq)]
enum Awaited {
    /// The node before the own one is deleted, which is the owner's or another waiter's.
    Turn { is_owners: bool },
    /// The own node is deleted. It is the oldest.
    OwnEnd,
    /// One of these nodes is deleted. `version` counts the changes of the list.
    Any { nodes: Vec<String>, version: i32 },
}

impl Watcher for Waiter {
    type Seen = Watched;

    async fn look(&self) -> Option<Watched> {
        self.watch().await.ok()
    }

    async fn change(&self, seen: &mut Watched) -> Change {
        let watcher = seen.watcher.take().expect("a look is followed once");
        let event = select! {
            // A watch panics if its connection has ended.
            biased;
            () = seen.connection.ended() => None,
            event = watcher.changed() => Some(event.event_type),
        };
        match (&seen.awaited, event) {
            (_, None | Some(EventType::Session)) => {
                self.freed.notify_one();
                Change::Lost
            }
            (Awaited::Turn { is_owners }, Some(_)) => {
                self.set_before(None);
                if !is_owners {
                    return Change::Seen;
                }
                // The owner may have moved only. The attempt shows it.
                self.freed.notify_one();
                Change::Turn
            }
            (_, Some(_)) => Change::Seen,
        }
    }

    /// A waiter that tries now sees all that the watch leaves out.
    fn looked(&self, before: &Watched, now: &Watched) {
        let may_be_free = match (&before.awaited, &now.awaited) {
            (Awaited::Any { nodes, version }, Awaited::Any { nodes: now, version: later }) => {
                let is_free_again = now.is_empty() && later > version;
                is_free_again || nodes.iter().any(|node| !now.contains(node))
            }
            (_, now) => !matches!(now, Awaited::Turn { .. }),
        };
        if may_be_free {
            self.freed.notify_one();
        }
    }
}

impl Waiter {
    fn set_before(&self, before: Option<Before>) {
        if let Some(holder) = &self.holder {
            self.zookeeper.shared.own_nodes.change(&self.name, holder, |own| own.before = before);
        }
    }

    /// Sets a watch on what is seen, and returns when the member has it.
    async fn watch(&self) -> Result<Watched, Failure> {
        let connection = self.zookeeper.ensemble.reading().await?;
        loop {
            if let Some((awaited, watcher)) = self.try_watch(&connection).await? {
                return Ok(Watched { awaited, watcher: Some(watcher), connection });
            }
        }
    }

    /// Sets a watch; `None` if what was seen was deleted meanwhile.
    async fn try_watch(
        &self,
        connection: &Connection,
    ) -> Result<Option<(Awaited, OneshotWatcher)>, Failure> {
        let own_nodes = &self.zookeeper.shared.own_nodes;
        let own = self.holder.as_ref().and_then(|holder| own_nodes.find(&self.name, holder));
        let Some(own) = own else { return self.watch_queue(connection).await };
        // A waiter that knows whom it waits for does not read the whole queue.
        let before = match own.before {
            Some(before) => Some(before),
            None => {
                let view = View::read(connection, &self.paths, Some(&own.path)).await?;
                if !view.has(&own.path) {
                    return self.watch_queue(connection).await;
                }
                view.before(&own.path)
            }
        };
        let (path, awaited) = match &before {
            Some(before) => (&before.path, Awaited::Turn { is_owners: before.ahead == 0 }),
            None => (&own.path, Awaited::OwnEnd),
        };
        match connection.answer(connection.client.get_and_watch_data(path)).await {
            Ok((_, _, watcher)) => {
                self.set_before(before.clone());
                Ok(Some((awaited, watcher)))
            }
            Err(Failure::NoNode) => {
                self.set_before(None);
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn watch_queue(
        &self,
        connection: &Connection,
    ) -> Result<Option<(Awaited, OneshotWatcher)>, Failure> {
        let queue = self.paths.queue();
        let any = |nodes, version| Awaited::Any { nodes, version };
        match connection.answer(connection.client.get_and_watch_children(&queue)).await {
            Ok((nodes, stat, watcher)) => Ok(Some((any(nodes, stat.cversion), watcher))),
            // Without its container, the queue is empty. The watch is for the creation.
            Err(Failure::NoNode) => {
                let watching = connection.client.check_and_watch_stat(&queue);
                match connection.answer(watching).await? {
                    (None, watcher) => Ok(Some((any(Vec::new(), 0), watcher))),
                    (Some(_), _) => Ok(None),
                }
            }
            Err(failure) => Err(failure),
        }
    }
}
