//! One attempt to acquire a lock, in four steps.

use std::time::Duration;

use fence::{Holder, ResourceName};

use super::{
    client::{OwnNode, ZooKeeper},
    connection::Connection,
    failure::Failure,
    messages::{Kind, Request},
    nodes::Nodes,
    view::{Place, View, token},
};
use crate::{
    backend::{Attempt, Backend, BackendError, Contention, Ownership},
    clock::Moment,
    terms::Order,
    ttl::Ttl,
};

/// The longest time for which a waiter in the queue is silent.
const LONGEST_NAP: Duration = Duration::from_secs(5);

impl ZooKeeper {
    /// Tries once to acquire the lock.
    pub(super) async fn acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError> {
        let (nodes, asked) = (self.nodes(name), Moment::now());
        // 1. Look first: in no order, an attempt that can't succeed makes no session.
        let seen = self.view(&nodes).await?;
        let placed = seen.place(holder).map(OwnNode::from);
        let has_place = placed.is_some();
        let own_node = placed.or_else(|| self.own_node(name, holder));
        if let (Order::Unordered, None, Some(owner)) = (order, &own_node, seen.owner()) {
            return Ok(busy(owner, None, ttl));
        }
        let _turn = self.attempt_turn().await;
        // 2. Go on with the session of an earlier attempt, or make one. Either sets its full time. It is
        // remembered before there is a node, so that a release ends it.
        let resumed = match &own_node {
            Some(own_node) if has_place => self.keep_alive(own_node).await,
            Some(own_node) => self.ensemble.resume(&own_node.session).await,
            None => Ok(self.ensemble.open_session(ttl).await?),
        };
        let connection = match resumed {
            Err(Failure::Expired) => {
                self.forget(name, holder);
                return Err(self.unavailable("the session of an earlier attempt has expired"));
            }
            resumed => resumed?,
        };
        let session = connection.session.clone();
        let own_node = own_node.unwrap_or_else(|| OwnNode { path: nodes.place(holder), session });
        self.remember(name, holder, own_node);
        // 3. Queue.
        if !has_place {
            self.queue(&connection, &nodes, holder).await?;
        }
        // 4. See whose place is the oldest. Only then the offset is read: an owner before this one may
        // have raised it until its own place was deleted.
        let view = View::read(&connection, &nodes).await?;
        let own = view.place(holder).filter(|own| own.session.id == connection.session.id);
        let (Some(own), Some(position)) = (own, view.position(holder)) else {
            return Err(self.unavailable("the holder's node was deleted, or moved meanwhile"));
        };
        match (position, view.owner()) {
            (0, _) => {
                if own.session.timeout_ms < ttl.as_millis() {
                    self.move_to_longer_session(name, &connection, own, ttl).await?;
                }
                let ownership = Ownership { holder: holder.clone(), grant: token(own.grant)? };
                Ok(Attempt::Granted { token: view.token(own)?, ownership, asked })
            }
            (_, None) => unreachable!("the own place is in the queue"),
            (older, Some(owner)) if order == Order::Fair => {
                // The oldest place is no waiter's.
                Ok(busy(owner, (older - 1).try_into().ok(), ttl))
            }
            (_, Some(owner)) => {
                connection.close_session().await?;
                self.forget(name, holder);
                Ok(busy(owner, None, ttl))
            }
        }
    }

    /// Makes the node of a holder, and those above it if they don't exist.
    async fn queue(
        &self,
        connection: &Connection,
        nodes: &Nodes,
        holder: &Holder,
    ) -> Result<(), Failure> {
        let (path, record) = (nodes.place(holder), connection.session.record());
        let create = Request::create(&path, &record, Kind::Ephemeral, self.access());
        loop {
            match connection.send(create.clone()).await {
                // An earlier attempt may have made it.
                Ok(_) | Err(Failure::NodeExists) => return Ok(()),
                // An empty container may be deleted at any moment.
                Err(Failure::NoNode) => self.make_container(connection, nodes).await?,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Makes the container of a lock, and the nodes above it if they don't exist.
    async fn make_container(&self, connection: &Connection, nodes: &Nodes) -> Result<(), Failure> {
        let container = nodes.queue();
        match self.make(connection, &container, Kind::Container).await {
            Err(Failure::NoNode) => {
                self.make_parents(connection, nodes).await?;
                self.make(connection, &container, Kind::Container).await
            }
            made => made,
        }
    }

    /// Makes the nodes above those of all locks.
    pub(super) async fn make_parents(
        &self,
        connection: &Connection,
        nodes: &Nodes,
    ) -> Result<(), Failure> {
        let root = &self.ensemble.server().root;
        for path in nodes.parents() {
            match self.make(connection, &path, Kind::Persistent).await {
                Err(Failure::NoNode) if !root.is_empty() => {
                    let reason = format!("{}: the node {root} does not exist", self.address());
                    return Err(Failure::Other(BackendError::Rejected(reason.into())));
                }
                made => made?,
            }
        }
        Ok(())
    }

    /// Makes a node, unless it exists.
    async fn make(&self, connection: &Connection, path: &str, kind: Kind) -> Result<(), Failure> {
        match connection.send(Request::create(path, "", kind, self.access())).await {
            Ok(_) | Err(Failure::NodeExists) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

/// The answer to a holder that does not own the lock.
fn busy(owner: &Place, ahead: Option<u64>, ttl: Ttl) -> Attempt {
    // ZooKeeper does not show how long a session has been silent.
    let remaining = Some(Duration::from_millis(owner.session.timeout_ms));
    let nap = ahead.map(|_| (ttl.as_duration() / 3).min(LONGEST_NAP));
    Attempt::Busy(Contention { remaining, ahead, nap })
}
