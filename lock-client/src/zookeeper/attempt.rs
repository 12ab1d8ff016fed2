//! One attempt to acquire a lock, in six steps.

use std::time::Duration;

use fence::{Holder, ResourceName};

use super::{
    client::{OwnNode, ZooKeeper},
    connection::Connection,
    failure::Failure,
    messages::{Kind, Request, Watch},
    nodes::Nodes,
    view::{Part, View, token},
};
use crate::{
    backend::{Attempt, Backend, BackendError, Contention, Ownership},
    clock::Moment,
    terms::Order,
    ttl::Ttl,
};

/// The longest time for which a waiter in the queue is silent.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// How long a waiter keeps its place without a try: some naps. So a waiter that crashed delays the
/// others no longer, whatever its ttl.
const WAITER_TTL: Duration = Duration::from_secs(15);

impl ZooKeeper {
    /// Tries once to acquire the lock.
    pub(super) async fn acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError> {
        loop {
            if let Some(attempt) = self.try_in_queue(name, holder, ttl, order).await? {
                return Ok(attempt);
            }
        }
    }

    /// Tries once. Returns `None` if the holder became a waiter with a session for an owner, and left
    /// the queue again.
    async fn try_in_queue(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Option<Attempt>, BackendError> {
        let (nodes, asked) = (self.nodes(name), Moment::now());
        // 1. Look first, unless the holder knows whom it waits for. In no order, an attempt that can't
        // succeed makes no session. In the queue, a waiter has a session that is short.
        let waits = |own_node: &OwnNode| order == Order::Fair && own_node.predecessor.is_some();
        let (own_node, has_place, is_first) = match self.own_node(name, holder).filter(waits) {
            Some(own_node) => (Some(own_node), true, false),
            None => {
                let part = match order {
                    Order::Unordered => Part::All,
                    Order::Fair => Part::Holder(holder),
                };
                let seen = self.view(&nodes, part).await?;
                let placed = seen.place(holder).map(OwnNode::from);
                let has_place = placed.is_some();
                let own_node = placed.or_else(|| self.own_node(name, holder));
                if let (Order::Unordered, None, Some(owner)) = (order, &own_node, seen.owner()) {
                    let remaining = Duration::from_millis(owner.session.timeout_ms);
                    return Ok(Some(busy(remaining, None, ttl)));
                }
                (own_node, has_place, seen.count == 0)
            }
        };
        let _turn = self.attempt_turn().await;
        // 2. Go on with the session of an earlier attempt, or make one. Either sets its full time. It is
        // remembered before there is a node, so that a release ends it.
        let resumed = match &own_node {
            Some(own_node) if has_place => self.keep_alive(own_node).await,
            Some(own_node) => self.ensemble.resume(&own_node.session).await,
            None if order == Order::Fair && !is_first => {
                Ok(self.ensemble.open_short_session(ttl, WAITER_TTL).await?)
            }
            None => Ok(self.ensemble.open_session(ttl).await?),
        };
        let connection = match resumed {
            Err(Failure::Expired) => {
                self.forget(name, holder);
                return Err(self.unavailable("the session of an earlier attempt has expired"));
            }
            Err(Failure::NoNode) => {
                // The next attempt looks where the holder's place is.
                self.set_predecessor(name, holder, None);
                return Err(Failure::NoNode.into());
            }
            resumed => resumed?,
        };
        let session = connection.session.clone();
        let path = || nodes.place(holder);
        let own_node =
            own_node.unwrap_or_else(|| OwnNode { path: path(), session, predecessor: None });
        let predecessor = own_node.predecessor.clone();
        self.remember(name, holder, own_node);
        // 3. Queue.
        if !has_place {
            self.queue(&connection, &nodes, holder).await?;
        }
        // 4. As long as the place before a waiter's exists, nothing else matters. The owner alone may
        // have moved to another node.
        if let Some(before) = predecessor
            && before.exists(&connection, Watch::No).await?
        {
            return Ok(Some(busy(before.remaining, Some(before.ahead), ttl)));
        }
        // 5. See whose place is the oldest. Only then the offset is read: an owner before this one may
        // have raised it until its own place was deleted.
        let view = View::read(&connection, &nodes, Part::All).await.map_err(BackendError::from);
        // From here on, the holder may have a node.
        let view = view.map_err(BackendError::after_a_change)?;
        let own = view.place(holder).filter(|own| own.session.id == connection.session.id);
        let Some(own) = own else {
            return Err(self.unavailable("the holder's node was deleted, or moved meanwhile"));
        };
        let before = view.predecessor(holder);
        self.set_predecessor(name, holder, before.clone());
        let Some(before) = before else {
            if own.session.timeout_ms < ttl.as_millis() {
                self.move_to_longer_session(name, &connection, own, ttl).await?;
            }
            let grant = token(own.grant).map_err(BackendError::after_a_change)?;
            let token = view.token(own).map_err(BackendError::after_a_change)?;
            let ownership = Ownership { holder: holder.clone(), grant };
            return Ok(Some(Attempt::Granted { token, ownership, asked }));
        };
        // 6. Another is faster. In the queue, its long session would outlast a crash.
        let is_short = u128::from(own.session.timeout_ms) <= WAITER_TTL.as_millis();
        if order == Order::Fair && (is_short || !is_first) {
            return Ok(Some(busy(before.remaining, Some(before.ahead), ttl)));
        }
        connection.close_session().await?;
        self.forget(name, holder);
        Ok((order == Order::Unordered).then(|| busy(before.remaining, None, ttl)))
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
fn busy(remaining: Duration, ahead: Option<u64>, ttl: Ttl) -> Attempt {
    // ZooKeeper does not show how long a session has been silent.
    let remaining = Some(remaining);
    let nap = ahead.map(|_| (ttl.as_duration() / 3).min(LONGEST_NAP));
    Attempt::Busy(Contention { remaining, ahead, nap })
}
