//! One attempt to acquire a lock, in six steps.

use std::time::Duration;

use fence::{Holder, ResourceName};
use tokio::join;

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    messages::{Kind, Request, Watch},
    nodes::Nodes,
    own_nodes::OwnNode,
    ownership::close_in_background,
    view::{Part, Place, Predecessor, View, token},
};
use crate::{
    backend::{Attempt, BackendError, Contention, Ownership},
    clock::Moment,
    terms::Order,
    ttl::Ttl,
};

/// The longest time for which a waiter in the queue is silent.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// How long a waiter keeps its place without a try: some naps. So a waiter that crashed delays the
/// others no longer, whatever its ttl.
const WAITER_TTL: Duration = Duration::from_secs(15);

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

/// What an attempt finds.
struct Found {
    /// What the holder has, or may have.
    own_node: Option<OwnNode>,
    /// Whether its node exists.
    has_place: bool,
    /// Whether nobody else is in the queue.
    is_empty: bool,
    /// The time-out of the oldest place that was read.
    remaining: Option<Duration>,
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
    ) -> Result<Attempt, BackendError> {
        loop {
            let (nodes, asked) = (self.nodes(name), Moment::now());
            let attempt = Try { zookeeper: self, name, nodes, holder, ttl, order, asked };
            if let Some(attempt) = attempt.run().await? {
                return Ok(attempt);
            }
        }
    }

    /// Makes the container of a lock, and the nodes above it if they don't exist.
    async fn make_container(&self, connection: &Connection, nodes: &Nodes) -> Result<(), Failure> {
        let container = nodes.queue();
        match self.make(connection, &container, Kind::Container).await {
            Err(Failure::NoNode) => {
                self.make_parents(connection).await?;
                self.make(connection, &container, Kind::Container).await
            }
            made => made,
        }
    }

    /// Makes the nodes above those of all locks.
    pub(super) async fn make_parents(&self, connection: &Connection) -> Result<(), Failure> {
        let root = &self.ensemble.server().root;
        for path in Nodes::above_all(root) {
            match self.make(connection, &path, Kind::Persistent).await {
                Err(Failure::NoNode) if !root.is_empty() => return Err(self.missing_root()),
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

impl Try<'_> {
    /// Returns `None` if the holder has left the queue, and must queue again with a shorter session.
    async fn run(&self) -> Result<Option<Attempt>, BackendError> {
        let Self { zookeeper, name, nodes, holder, ttl, order, .. } = self;
        let found = self.find().await?;
        if let (Order::Unordered, None, Some(remaining)) = (order, &found.own_node, found.remaining)
        {
            return Ok(Some(busy(remaining, None, *ttl)));
        }
        let turn = zookeeper.attempt_turn().await;
        let (has_place, resumes) = (found.has_place, found.own_node.is_some());
        let opens_short = *order == Order::Fair && found.own_node.is_none() && !found.is_empty;
        let connection = self.connect(&found, opens_short).await?;
        // A release ends the session, because it is remembered before there is a node.
        let session = connection.session.clone();
        let new = || OwnNode::new(session, nodes.place(holder));
        let mut own_node = found.own_node.unwrap_or_else(new);
        // An earlier attempt had no answer.
        own_node.may_get_another |= resumes && !has_place;
        zookeeper.own_nodes.remember(name, holder, own_node.clone());
        let view = if has_place {
            match self.look_again(&connection, &own_node).await? {
                Look::Whole(view) => view,
                Look::Behind(before) => {
                    return Ok(Some(busy(before.remaining, Some(before.ahead), *ttl)));
                }
            }
        } else {
            // To go on with the session has set its full time.
            let queued = self.queue(&connection).await;
            queued.map_err(|error| if resumes { error.after_a_change() } else { error })?
        };
        let outcome = self.outcome(&connection, &view).await?;
        let Attempt::Busy(contention) = &outcome else {
            if let Some(own) = view.place(holder)
                && own.session.timeout_ms < ttl.as_millis()
            {
                let moved = self.move_to_longer_session(own).await;
                moved.map_err(BackendError::after_a_change)?;
                close_in_background(connection, turn);
            }
            return Ok(Some(outcome));
        };
        // 6. Another was faster. A waiter that has just queued with a session for an owner leaves again:
        // the session would outlast a crash.
        let lasts = Duration::from_millis(connection.session.timeout_ms);
        if contention.ahead.is_some() && (has_place || opens_short || lasts <= WAITER_TTL) {
            return Ok(Some(outcome));
        }
        connection.close_session().await.map_err(Failure::after_a_change)?;
        zookeeper.own_nodes.forget(name, holder);
        Ok((*order == Order::Unordered).then_some(outcome))
    }

    /// 1. Look first, unless the holder knows whom it waits for. In no order, an attempt that can't
    ///    succeed makes no session. In the queue, a waiter has a session that is short.
    async fn find(&self) -> Result<Found, BackendError> {
        let Self { zookeeper, name, nodes, holder, order, .. } = self;
        let remembered = zookeeper.own_nodes.get(name, holder);
        let waits = remembered.as_ref().is_some_and(|own_node| own_node.predecessor.is_some());
        if *order == Order::Fair && waits {
            let (has_place, is_empty, remaining) = (true, false, None);
            return Ok(Found { own_node: remembered, has_place, is_empty, remaining });
        }
        let part = match order {
            Order::Unordered => Part::All,
            Order::Fair => Part::Holder(holder),
        };
        let own_path = remembered.as_ref().map(|own_node| own_node.path.as_str());
        let seen = zookeeper.view(nodes, part, own_path).await?;
        let placed = seen.place(holder).map(OwnNode::from);
        let time_out = |owner: &Place| Duration::from_millis(owner.session.timeout_ms);
        Ok(Found {
            has_place: placed.is_some(),
            own_node: placed.or(remembered),
            is_empty: seen.count == 0,
            remaining: seen.owner().map(time_out),
        })
    }

    /// 2. Go on with the session of an earlier attempt, or make one. Either sets its full time.
    async fn connect(&self, found: &Found, opens_short: bool) -> Result<Connection, BackendError> {
        let Self { zookeeper, ttl, .. } = self;
        match &found.own_node {
            Some(own_node) => {
                let resumed = zookeeper.ensemble.resume(&own_node.session).await;
                resumed.map_err(|failure| self.lost(failure))
            }
            None if opens_short => zookeeper.ensemble.open_short_session(*ttl, WAITER_TTL).await,
            None => zookeeper.ensemble.open_session(*ttl).await,
        }
    }

    /// 3. Queue: make the node, and those above it if they don't exist. The look is sent behind it.
    async fn queue(&self, connection: &Connection) -> Result<View, BackendError> {
        let Self { zookeeper, nodes, holder, .. } = self;
        let (path, record) = (nodes.place(holder), connection.session.record());
        let create = Request::create(&path, &record, Kind::Ephemeral, zookeeper.access());
        loop {
            let created = connection.send(create.clone());
            let look = View::read(connection, nodes, Part::All, Some(&path));
            match join!(created, look) {
                // An earlier attempt may have made it.
                (Ok(_) | Err(Failure::NodeExists), view) => return view.map_err(unknown),
                // An empty container may be deleted at any moment.
                (Err(Failure::NoNode), _) => zookeeper.make_container(connection, nodes).await?,
                (Err(failure), _) => return Err(failure.into()),
            }
        }
    }

    /// 4. Check the node that the holder has. As long as the place before a waiter's exists, nothing
    ///    else matters. If the owner has moved to another node, the whole queue shows it.
    async fn look_again(
        &self,
        connection: &Connection,
        own_node: &OwnNode,
    ) -> Result<Look, BackendError> {
        let checked = connection.check(&own_node.path);
        let looked = async {
            match &own_node.predecessor {
                Some(before) if before.exists(connection, Watch::No).await? => {
                    Ok(Look::Behind(before.clone()))
                }
                _ => {
                    let path = Some(own_node.path.as_str());
                    View::read(connection, &self.nodes, Part::All, path).await.map(Look::Whole)
                }
            }
        };
        // The look is sent behind the check.
        let (checked, looked) = join!(checked, looked);
        checked.map_err(|failure| self.lost(failure.after_a_change()))?;
        looked.map_err(unknown)
    }

    /// Reports why the session or the node of an earlier attempt can't be used.
    fn lost(&self, failure: Failure) -> BackendError {
        let Self { zookeeper, name, holder, .. } = self;
        match failure {
            Failure::Expired => {
                zookeeper.own_nodes.forget(name, holder);
                zookeeper.unavailable("the session of an earlier attempt has expired")
            }
            Failure::NoNode => {
                // The next attempt looks where the holder's place is.
                zookeeper.own_nodes.change(name, holder, |own_node| own_node.predecessor = None);
                Failure::NoNode.into()
            }
            failure => failure.into(),
        }
    }

    async fn move_to_longer_session(&self, own: &Place) -> Result<(), BackendError> {
        let longer = self.zookeeper.ensemble.open_session(self.ttl).await?;
        Ok(self.zookeeper.move_to_session(self.name, &longer, own).await?)
    }

    /// 5. See whose place is the oldest. The offset was read behind the list that shows it: an owner before
    ///    this one may have raised it until its own place was deleted.
    async fn outcome(&self, connection: &Connection, view: &View) -> Result<Attempt, BackendError> {
        let Self { zookeeper, name, holder, ttl, order, asked, .. } = self;
        let own = view.place(holder).filter(|own| own.session.id == connection.session.id);
        let Some(own) = own else {
            let reason = "the holder's node was deleted, or moved meanwhile";
            return Err(zookeeper.unavailable(reason));
        };
        let before = view.predecessor(holder);
        zookeeper.own_nodes.change(name, holder, |own_node| {
            let predecessor = before.clone();
            let may_get_another = own_node.may_get_another;
            *own_node = OwnNode { predecessor, may_get_another, ..OwnNode::from(own) };
        });
        if let Some(before) = before {
            let ahead = (*order == Order::Fair).then_some(before.ahead);
            return Ok(busy(before.remaining, ahead, *ttl));
        }
        let grant = token(own.grant).map_err(BackendError::after_a_change)?;
        let ownership = Ownership { holder: (*holder).clone(), grant };
        let token = view.token(own).map_err(BackendError::after_a_change)?;
        Ok(Attempt::Granted { token, ownership, asked: *asked })
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
