//! One attempt to acquire a lock, in six steps.

use std::{sync::Arc, time::Duration};

use fence::{Holder, ResourceName, Token};
use tokio::join;
use zookeeper_client::CreateMode;

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    own_nodes::OwnNode,
    paths::Paths,
    session::{InUse, Purpose, Usage},
    view::{Before, View, record},
};
use crate::{
    backend::{Attempt, BackendError, Contention, Ownership, token},
    clock::Moment,
    terms::{LONGEST_SLEEP, Order, PLACE_PATIENCE},
    ttl::Ttl,
};

/// How old the proof of a session may be, in parts of the ttl. The deadline of the lease counts from the
/// proof.
const PROOF_AGE: u32 = 10;

struct Try<'a> {
    zookeeper: &'a ZooKeeper,
    name: &'a ResourceName,
    paths: Paths,
    holder: &'a Holder,
    ttl: Ttl,
    order: Order,
    asked: Moment,
}

/// What a holder that is in the queue sees.
enum Look {
    Whole(View),
    /// The place before the holder's still exists.
    Behind(Before),
}

impl ZooKeeper {
    pub(super) async fn acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
        usage: Usage,
    ) -> Result<Attempt, BackendError> {
        let (paths, asked) = (self.paths(name), Moment::now());
        Try { zookeeper: self, name, paths, holder, ttl, order, asked }.run(usage).await
    }

    /// Makes the container of a lock, and the nodes above it if they don't exist.
    async fn make_container(&self, connection: &Connection, paths: &Paths) -> Result<(), Failure> {
        let container = paths.queue();
        match self.make(connection, &container, CreateMode::Container).await {
            Err(Failure::NoNode) => {
                self.make_parents(connection).await?;
                self.make(connection, &container, CreateMode::Container).await
            }
            made => made,
        }
    }

    pub(super) async fn make_parents(&self, connection: &Connection) -> Result<(), Failure> {
        let root = &self.ensemble.server().root;
        for path in Paths::above_all(root) {
            match self.make(connection, &path, CreateMode::Persistent).await {
                Err(Failure::NoNode) if !root.is_empty() => return Err(self.missing_root()),
                made => made?,
            }
        }
        Ok(())
    }

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
    async fn run(&self, usage: Usage) -> Result<Attempt, BackendError> {
        let Self { zookeeper, name, paths, holder, ttl, order, asked } = self;
        let own_nodes = &zookeeper.shared.own_nodes;
        // 1. See what an earlier attempt has left. A holder that was granted the lock renews it.
        let mut own = own_nodes.find(name, holder);
        if let Some(ended) = own.take_if(|own| own.until.has_passed()) {
            zookeeper.delete_ended(name, holder, &ended).await?;
        }
        if let Some(grant) = own.as_ref().and_then(|own| own.grant) {
            return self.renew(grant).await;
        }
        // 2. Look first if there is a connection that reads: somebody waits here. In no order, an attempt
        // that can't succeed then writes nothing.
        if *order == Order::Unordered
            && own.is_none()
            && zookeeper.ensemble.is_reading()
            && let Some(owner) = zookeeper.view(paths).await?.owner()
        {
            return Ok(busy(owner.lasts, None, *ttl));
        }
        // 3. Take a session. A release deletes the node, because it is remembered before there is one.
        let is_new = own.is_none();
        let own = match own {
            Some(own) => own,
            None => self.remember_node(usage).await?,
        };
        own_nodes.change(name, holder, |own| own.until = Moment::now() + ttl.as_duration());
        let session = own.session();
        let since = asked.checked_sub(ttl.as_duration() / PROOF_AGE).unwrap_or(*asked);
        let link = session.proven_since(&zookeeper.ensemble, since, Purpose::Try).await;
        if let Err(Failure::Expired) = link {
            // If a member is wrong, the node still exists, and is deleted.
            session.give_up();
            own_nodes.end(name, holder);
        }
        let link = link?;
        // 4. Queue, and look behind that.
        let look = self.queue(link, &own, is_new).await?;
        // 5. See whose place is the oldest. The offset was read behind the list that shows it: an owner
        // before this one may have raised it until its own place was deleted.
        let (before, view) = match look {
            Look::Behind(before) => (Some(before), None),
            Look::Whole(view) => (view.before(&own.path), Some(view)),
        };
        if let Some(before) = before {
            let answer = (before.remaining, (*order == Order::Fair).then_some(before.ahead));
            match order {
                Order::Fair => self.wait_behind(before),
                // Another was faster.
                Order::Unordered => self.leave(&own).await?,
            }
            return Ok(busy(answer.0, answer.1, *ttl));
        }
        let owner = view.as_ref().and_then(|view| Some((view, view.owner()?)));
        let Some((view, owner)) = owner.filter(|(_, owner)| owner.path == own.path) else {
            return Err(self.gone());
        };
        let grant = token(owner.grant).map_err(BackendError::after_a_change)?;
        let token = view.token(owner).map_err(BackendError::after_a_change)?;
        // 6. The lock is the holder's, unless its time has passed: then the node is being deleted.
        let until = Moment::now() + ttl.as_duration();
        let is_granted = own_nodes.change(name, holder, |own| {
            (own.grant, own.before, own.until) = (Some(grant), None, until);
        });
        if !is_granted {
            return Err(self.gone());
        }
        if session.ttl < *ttl {
            return self.renew(grant).await;
        }
        let ownership = Ownership { holder: (*holder).clone(), grant };
        Ok(Attempt::Granted { token, ownership, asked: session.proven().min(*asked) })
    }

    /// Remembers a new node of the holder, in a session that lasts for the ttl.
    async fn remember_node(&self, usage: Usage) -> Result<OwnNode, BackendError> {
        let Self { zookeeper, name, paths, holder, ttl, .. } = self;
        let session = zookeeper.session(*ttl, usage, Purpose::Try).await?;
        let path = paths.new_place(holder);
        let own = OwnNode {
            room: session.room(&path),
            path,
            moves_to: None,
            grant: None,
            before: None,
            deletion: Arc::default(),
            until: Moment::now() + ttl.as_duration(),
        };
        zookeeper.remember(name, holder, own.clone());
        Ok(own)
    }

    /// Queues, and looks behind that. A waiter whose turn it is only looks: a session that was just proven
    /// keeps the place that is still seen. A write would cost as much as the release before.
    async fn queue(
        &self,
        link: InUse<'_>,
        own: &OwnNode,
        is_new: bool,
    ) -> Result<Look, BackendError> {
        if !is_new
            && let Look::Whole(view) = self.look(&link, own).await.map_err(unknown)?
            && view.has(&own.path)
        {
            return Ok(Look::Whole(view));
        }
        let sent = Moment::now();
        match self.make_node(&link, own, is_new).await {
            Ok(look) => {
                // A server without followers sets the full time with each write.
                if link.is_standalone {
                    own.session().has_written(sent);
                }
                Ok(look)
            }
            Err(Failure::Other(error @ BackendError::Rejected(_))) if is_new => {
                drop(link);
                self.leave(own).await?;
                Err(error)
            }
            Err(failure) => Err(unknown(failure)),
        }
    }

    /// Makes the node unless it exists, and those above it. The look is sent behind it.
    async fn make_node(
        &self,
        connection: &Connection,
        own: &OwnNode,
        is_new: bool,
    ) -> Result<Look, Failure> {
        let Self { zookeeper, name, paths, holder, .. } = self;
        let own_nodes = &zookeeper.shared.own_nodes;
        let options = CreateMode::Ephemeral.with_acls(zookeeper.access());
        let data = record(own.session().ttl, None);
        loop {
            // Once its time has passed, a deletion may be under way, and must stay the last request.
            if !own_nodes.change(name, holder, |_| ()) {
                return Err(Failure::Other(self.gone()));
            }
            let created = connection.client.create(&own.path, data.as_bytes(), &options);
            match join!(connection.answer(created), self.look(connection, own)) {
                (Err(Failure::NodeExists), look) => return look,
                // A waiter that has lost its place is the last again.
                (Ok(_), Ok(Look::Behind(_))) => {
                    let view = View::read(connection, paths, Some(&own.path)).await;
                    return view.map(Look::Whole);
                }
                (Ok(_), look) => return look,
                // An empty container may be deleted at any moment.
                (Err(Failure::NoNode), _) => zookeeper.make_container(connection, paths).await?,
                (Err(failure), _) => {
                    if is_new && matches!(failure, Failure::Other(BackendError::Rejected(_))) {
                        own_nodes.forget(name, holder, &own.path);
                    }
                    return Err(failure);
                }
            }
        }
    }

    /// Reads the place before a waiter's, or the whole queue if that is gone. As long as it exists,
    /// nothing else matters. If it is the owner's, and has moved, the whole queue shows it.
    async fn look(&self, connection: &Connection, own: &OwnNode) -> Result<Look, Failure> {
        if let Some(before) = &own.before {
            let stat = connection.client.check_stat(&before.path);
            if connection.answer(stat).await?.is_some() {
                return Ok(Look::Behind(before.clone()));
            }
        }
        View::read(connection, &self.paths, Some(&own.path)).await.map(Look::Whole)
    }

    fn wait_behind(&self, before: Before) {
        let Self { zookeeper, name, holder, ttl, .. } = self;
        let until = Moment::now() + ttl.as_duration().min(PLACE_PATIENCE);
        zookeeper.shared.own_nodes.change(name, holder, |own| {
            (own.before, own.until) = (Some(before), until);
        });
    }

    /// Leaves the queue. Until that is answered, the client repeats it.
    async fn leave(&self, own: &OwnNode) -> Result<(), BackendError> {
        let Self { zookeeper, name, holder, .. } = self;
        if zookeeper.shared.own_nodes.end(name, holder).is_some() {
            let left = zookeeper.delete_ended(name, holder, own).await;
            left.map_err(BackendError::after_a_change)?;
        }
        Ok(())
    }

    async fn renew(&self, grant: Token) -> Result<Attempt, BackendError> {
        let Self { zookeeper, name, holder, ttl, asked, .. } = self;
        let ownership = Ownership { holder: (*holder).clone(), grant };
        match zookeeper.renew_ownership(name, &ownership, *ttl).await? {
            Some(token) => Ok(Attempt::Granted { token, ownership, asked: *asked }),
            None => Err(self.gone()),
        }
    }

    fn gone(&self) -> BackendError {
        self.zookeeper.unavailable("the holder's node was deleted meanwhile")
    }
}

fn unknown(failure: Failure) -> BackendError {
    BackendError::from(failure).after_a_change()
}

fn busy(remaining: Duration, ahead: Option<u64>, ttl: Ttl) -> Attempt {
    // ZooKeeper does not show how long a session has been silent.
    let remaining = Some(remaining);
    let nap = ahead.map(|_| (ttl.as_duration() / 3).min(LONGEST_SLEEP));
    Attempt::Busy(Contention { remaining, ahead, nap })
}
