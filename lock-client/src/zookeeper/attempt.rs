//! One attempt to acquire a lock, in six steps.

use std::{mem::take, sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use tokio::join;
use zookeeper_client::CreateMode;

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    nodes::Nodes,
    own_nodes::OwnNode,
    session::{Link, Session},
    view::{Predecessor, View, token},
};
use crate::{
    backend::{Attempt, BackendError, Contention, Ownership},
    clock::Moment,
    terms::Order,
    ttl::Ttl,
};

/// The longest time for which a waiter in the queue is silent.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// How long a waiter keeps its place without a try: some naps. A waiter whose process has died keeps it
/// until its session ends.
const WAITER_TTL: Duration = Duration::from_secs(15);
/// How old the proof of a session may be for a first attempt, in parts of the ttl. The deadline of the
/// lease counts from the proof.
const PROOF_AGE: u32 = 10;

/// One attempt to acquire a lock.
struct Try<'a> {
    zookeeper: &'a ZooKeeper,
    name: &'a ResourceName,
    nodes: Nodes,
    holder: &'a Holder,
    ttl: Ttl,
    order: Order,
    asked: Moment,
}

/// What a holder that is in the queue sees.
enum Look {
    Whole(View),
    /// The place before the holder's still exists.
    Behind(Predecessor),
}

impl ZooKeeper {
    /// Tries once to acquire the lock.
    pub(super) async fn acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
        has_own_session: bool,
    ) -> Result<Attempt, BackendError> {
        let (nodes, asked) = (self.nodes(name), Moment::now());
        let attempt = Try { zookeeper: self, name, nodes, holder, ttl, order, asked };
        attempt.run(has_own_session).await
    }

    /// Makes the container of a lock, and the nodes above it if they don't exist.
    async fn make_container(&self, connection: &Connection, nodes: &Nodes) -> Result<(), Failure> {
        let container = nodes.queue();
        match self.make(connection, &container, CreateMode::Container).await {
            Err(Failure::NoNode) => {
                self.make_parents(connection).await?;
                self.make(connection, &container, CreateMode::Container).await
            }
            made => made,
        }
    }

    /// Makes the nodes above those of all locks.
    pub(super) async fn make_parents(&self, connection: &Connection) -> Result<(), Failure> {
        let root = &self.ensemble.server().root;
        for path in Nodes::above_all(root) {
            match self.make(connection, &path, CreateMode::Persistent).await {
                Err(Failure::NoNode) if !root.is_empty() => return Err(self.missing_root()),
                made => made?,
            }
        }
        Ok(())
    }

    /// Makes a node, unless it exists.
    async fn make(
        &self,
        connection: &Connection,
        path: &str,
        mode: CreateMode,
    ) -> Result<(), Failure> {
        let created = connection.client.create(path, b"", &mode.with_acls(self.access()));
        match connection.answer(created).await {
            Ok(_) | Err(Failure::NodeExists) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

impl Try<'_> {
    async fn run(&self, has_own_session: bool) -> Result<Attempt, BackendError> {
        let Self { zookeeper, name, nodes, holder, ttl, order, asked } = self;
        let own_nodes = &zookeeper.shared.own_nodes;
        // 1. Look first if there is a connection that reads: somebody waits here. In no order, an attempt
        // that can't succeed then writes nothing.
        let turn = own_nodes.get(name, holder).map_or_else(Arc::default, |own_node| own_node.turn);
        let _turn = turn.lock().await;
        let remembered = own_nodes.get(name, holder);
        if *order == Order::Unordered
            && remembered.is_none()
            && zookeeper.ensemble.is_reading()
            && let Some(owner) = zookeeper.view(nodes, None).await?.owner()
        {
            return Ok(busy(owner.lasts, None, *ttl));
        }
        // 2. Take a session, or go on with that of an earlier attempt. A release deletes the node, because
        // it is remembered before there is one.
        let resumes = remembered.is_some();
        let mut own_node = match remembered {
            Some(own_node) => own_node,
            None => {
                let session = zookeeper.session(*ttl, has_own_session).await?;
                let path = nodes.place(holder);
                OwnNode {
                    room: session.room(&path),
                    path,
                    is_placed: false,
                    is_granted: false,
                    is_alone: has_own_session,
                    may_have_another: false,
                    predecessor: None,
                    until: *asked,
                    turn: turn.clone(),
                }
            }
        };
        own_node.until = Moment::now() + ttl.as_duration();
        own_nodes.remember(name, holder, own_node.clone());
        own_nodes.keep(&zookeeper.shared, &zookeeper.ensemble);
        let session = own_node.room.session.clone();
        let waits = own_node.predecessor.is_some();
        let since = match resumes && !waits {
            true => Some(*asked),
            false => asked.checked_sub(ttl.as_duration() / PROOF_AGE),
        };
        let link = session.proven_since(&zookeeper.ensemble, since.unwrap_or(*asked)).await;
        let link = match link {
            Ok(link) => link,
            Err(Failure::Expired) => return Err(self.expired(&session).await?),
            Err(failure) => return Err(failure.into()),
        };
        let sent = Moment::now();
        // 3. Queue, or check the place that the holder has. An earlier attempt may have made one, or
        // another client may have moved it.
        let look = match own_node.is_placed {
            true => self.look_again(&link.connection, &own_node).await?,
            false if resumes => match self.look_for_place(&link.connection).await? {
                Some(view) => Look::Whole(view),
                None => {
                    let queued = self.queue(&link, &session).await;
                    Look::Whole(queued.map_err(BackendError::after_a_change)?.map_err(unknown)?)
                }
            },
            false => match self.queue(&link, &session).await {
                Ok(Ok(view)) => Look::Whole(view),
                // Nothing is left of an attempt that is rejected.
                Err(error @ BackendError::Rejected(_)) => {
                    own_nodes.forget(name, holder);
                    return Err(error);
                }
                Ok(Err(Failure::Other(error @ BackendError::Rejected(_)))) => {
                    drop(link);
                    self.leave().await.map_err(Failure::after_a_change)?;
                    return Err(error);
                }
                Ok(Err(failure)) => return Err(unknown(failure)),
                Err(error) => return Err(error),
            },
        };
        // A server that is alone sets the full time with each write.
        let mut proven = session.proven();
        if link.is_alone {
            session.has_written(sent);
            proven = proven.max(sent);
        }
        let waits_longer = || own_nodes.prolong(name, holder, ttl.at_most(WAITER_TTL));
        let view = match look {
            Look::Whole(view) => view,
            Look::Behind(before) => {
                waits_longer();
                return Ok(busy(before.remaining, Some(before.ahead), *ttl));
            }
        };
        // 4. See whose place is the oldest. The offset was read behind the list that shows it: an owner
        // before this one may have raised it until its own place was deleted.
        let Some(own) = view.place(holder) else {
            own_nodes.change(name, holder, |own_node| own_node.is_placed = false);
            return Err(zookeeper.unavailable("the holder's node was deleted meanwhile"));
        };
        let before = view.predecessor(holder);
        own_nodes.change(name, holder, |own_node| {
            own_node.is_placed = true;
            own_node.predecessor = before.clone();
            own_node.path = own.path.clone();
        });
        if let Some(before) = before {
            let ahead = (*order == Order::Fair).then_some(before.ahead);
            if ahead.is_some() {
                waits_longer();
            } else {
                // 5. Another was faster.
                drop(link);
                self.leave().await.map_err(Failure::after_a_change)?;
            }
            return Ok(busy(before.remaining, ahead, *ttl));
        }
        let grant = token(own.grant).map_err(BackendError::after_a_change)?;
        let token = view.token(own).map_err(BackendError::after_a_change)?;
        let mut asked = proven.min(*asked);
        // 6. A place in another session moves to this one, and an owner to one that lasts long enough.
        drop(link);
        if own.session != session.id() || session.ttl < *ttl {
            let moved = zookeeper.move_to_session(name, own, *ttl, has_own_session).await;
            moved.map_err(BackendError::after_a_change)?;
            asked = self.asked;
        }
        own_nodes.change(name, holder, |own_node| own_node.is_granted = true);
        let ownership = Ownership { holder: (*holder).clone(), grant };
        Ok(Attempt::Granted { token, ownership, asked })
    }

    /// Leaves the queue.
    async fn leave(&self) -> Result<(), Failure> {
        let Self { zookeeper, name, holder, asked, .. } = self;
        let own_nodes = &zookeeper.shared.own_nodes;
        // Until that is answered, the client repeats it.
        own_nodes.change(name, holder, |own_node| own_node.until = *asked);
        let Some(own_node) = own_nodes.get(name, holder) else { return Ok(()) };
        match zookeeper.delete_own(&own_node).await {
            Ok(()) | Err(Failure::NoNode) if !own_node.may_have_another => {
                own_nodes.forget(name, holder);
                Ok(())
            }
            Ok(()) | Err(Failure::NoNode) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the node, and those above it if they don't exist. The look is sent behind it, and may fail
    /// alone.
    async fn queue(
        &self,
        link: &Link,
        session: &Session,
    ) -> Result<Result<View, Failure>, BackendError> {
        let Self { zookeeper, nodes, holder, .. } = self;
        let connection = &link.connection;
        let path = nodes.place(holder);
        let record = session.ttl.as_millis().to_string();
        let options = CreateMode::Ephemeral.with_acls(zookeeper.access());
        loop {
            let created = connection.client.create(&path, record.as_bytes(), &options);
            let look = View::read(connection, nodes, Some(&path));
            match join!(connection.answer(created), look) {
                // An earlier attempt may have made it.
                (Ok(_) | Err(Failure::NodeExists), view) => return Ok(view),
                // An empty container may be deleted at any moment.
                (Err(Failure::NoNode), _) => zookeeper.make_container(connection, nodes).await?,
                (Err(failure), _) => return Err(failure.into()),
            }
        }
    }

    /// Returns what the holder sees if it has a place.
    async fn look_for_place(&self, connection: &Connection) -> Result<Option<View>, BackendError> {
        let Self { zookeeper, name, nodes, holder, .. } = self;
        let seen = View::read(connection, nodes, None).await.map_err(unknown)?;
        if seen.place(holder).is_some() {
            return Ok(Some(seen));
        }
        // A late request may make a second one.
        let own_nodes = &zookeeper.shared.own_nodes;
        own_nodes.change(name, holder, |own_node| own_node.may_have_another = true);
        Ok(None)
    }

    /// Checks the node that the holder has. As long as the place before a waiter's exists, nothing else
    /// matters. If the owner has moved to another node, the whole queue shows it.
    async fn look_again(
        &self,
        connection: &Connection,
        own_node: &OwnNode,
    ) -> Result<Look, BackendError> {
        let checked = connection.check(&own_node.path);
        let looked = async {
            match &own_node.predecessor {
                Some(before) if before.exists(connection).await? => {
                    Ok(Look::Behind(before.clone()))
                }
                _ => {
                    let path = Some(own_node.path.as_str());
                    View::read(connection, &self.nodes, path).await.map(Look::Whole)
                }
            }
        };
        // The look is sent behind the check.
        let (checked, looked) = join!(checked, looked);
        checked.map_err(|failure| self.lost(failure.after_a_change()))?;
        looked.map_err(unknown)
    }

    /// Reports that all members which answered know no such session. That is believed if the holder has no
    /// node: then the next attempt takes another session.
    async fn expired(&self, session: &Session) -> Result<BackendError, BackendError> {
        let Self { zookeeper, name, nodes, holder, .. } = self;
        if zookeeper.view_behind_write(nodes).await.map_err(unknown)?.place(holder).is_none() {
            session.doubt();
            zookeeper.shared.own_nodes.forget(name, holder);
        }
        Ok(zookeeper.unavailable("the session of an earlier attempt has expired"))
    }

    /// Reports why the node of an earlier attempt can't be used.
    fn lost(&self, failure: Failure) -> BackendError {
        let Self { zookeeper, name, holder, .. } = self;
        let own_nodes = &zookeeper.shared.own_nodes;
        match failure {
            Failure::NoNode => {
                // The next attempt looks where the holder's place is, or queues again.
                own_nodes.change(name, holder, |own_node| {
                    own_node.is_placed = false;
                    take(&mut own_node.predecessor);
                });
                Failure::NoNode.into()
            }
            failure => failure.into(),
        }
    }
}

/// Reports a failure of a holder that may have a node.
fn unknown(failure: Failure) -> BackendError {
    BackendError::from(failure).after_a_change()
}

/// The answer to a holder that does not own the lock.
fn busy(remaining: Duration, ahead: Option<u64>, ttl: Ttl) -> Attempt {
    // ZooKeeper does not show how long a session has been silent.
    let remaining = Some(remaining);
    let nap = ahead.map(|_| (ttl.as_duration() / 3).min(LONGEST_NAP));
    Attempt::Busy(Contention { remaining, ahead, nap })
}
