//! What an owner does while it holds a lock: it renews and reissues.

use fence::{ResourceName, Token};
use zookeeper_client::CreateMode;

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    own_nodes::OwnNode,
    paths::Paths,
    session::{Purpose, Usage},
    view::{Place, View, record},
};
use crate::{
    backend::{BackendError, Ownership, token},
    clock::Moment,
    ttl::Ttl,
};

/// How often a renewal follows a lock to another session.
const MOVES: usize = 3;

impl ZooKeeper {
    /// Renews an ownership: proves that its session has the full time, and only then checks whose the
    /// lock is.
    pub(super) async fn renew_ownership(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        let (paths, holder, asked) = (self.paths(name), &ownership.holder, Moment::now());
        let own_nodes = &self.shared.own_nodes;
        let is_lease = |own: &OwnNode| own.grant == Some(ownership.grant);
        let mut remembered = own_nodes.find(name, holder);
        // A lease that has ended is only deleted. Another client may have moved the lock before.
        if let Some(ended) = remembered.take_if(|own| own.until.has_passed()) {
            self.delete_ended(name, holder, &ended).await?;
        }
        let mut remembered = remembered.filter(is_lease);
        for _ in 0..MOVES {
            // 1. Find the session. If another client has moved the lock to its own session, or if the
            // session is too short, the lock moves to one of this client.
            let own = match remembered.take().filter(|own| own.session().ttl >= ttl) {
                Some(own) => own,
                None => match self.move_here(name, ownership, ttl).await? {
                    Some(own) => own,
                    None => return Ok(None),
                },
            };
            let session = own.session();
            let is_here = |owner: &Place| owner.session == session.id();
            // 2. Prove that the session has had its full time since this renewal began, and look. If another
            // request hangs on the same connection, look again over the next.
            let look = async || {
                let mut is_repeated = false;
                loop {
                    let link = session.proven_since(&self.ensemble, asked, Purpose::Held).await?;
                    let seen = View::read(&link, &paths, Some(&own.path)).await;
                    match seen.map_err(Failure::after_a_change) {
                        Err(Failure::Other(BackendError::Unavailable(_))) if !is_repeated => {
                            is_repeated = true;
                        }
                        seen => return seen,
                    }
                }
            };
            let seen = match look().await {
                Ok(seen) => seen,
                // It was given up, or all members say so. A leader that was replaced does, too, and a
                // member of another ensemble. Only the end of its node proves the end of a session.
                Err(Failure::Expired) => {
                    session.give_up();
                    continue;
                }
                // The node is about to go, earlier than the lease knows of.
                Err(Failure::Shortened { .. }) => return Ok(None),
                Err(failure) => return Err(failure.into()),
            };
            // 3. Only the oldest place is the owner's, also after ZooKeeper was restored.
            match seen.owner_if(ownership) {
                Some(owner) if is_here(owner) => {
                    let until = Moment::now() + ttl.as_duration();
                    let path = owner.path.clone();
                    let goes_on = own_nodes.change(name, holder, |own| {
                        own.moves_to.take_if(|moves_to| *moves_to == path);
                        (own.path, own.until) = (path, until);
                    });
                    return match goes_on {
                        true => seen.token(owner).map(Some).map_err(BackendError::after_a_change),
                        false => Err(self.unavailable("the lease has ended meanwhile")),
                    };
                }
                Some(_) => {}
                // It may still have a node, which is deleted.
                None => {
                    own_nodes.lose(name, ownership);
                    return Ok(None);
                }
            }
        }
        Err(self.unavailable("the lock was moved to another session meanwhile"))
    }

    /// Moves a lock to a session of this client, with another node that keeps the grant, and so the
    /// order. A session's own time-out never changes: an elected leader would not know of it. Returns
    /// `None` if the lock is not this ownership's.
    async fn move_here(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<OwnNode>, BackendError> {
        let (paths, holder) = (self.paths(name), &ownership.holder);
        let own_nodes = &self.shared.own_nodes;
        let before = own_nodes.find(name, holder);
        let seen = {
            let connection = self.connected(before.as_ref()).await?;
            View::read_for(&connection, &paths, ownership).await?
        };
        let Some(owner) = seen.owner_if(ownership) else {
            own_nodes.lose(name, ownership);
            return Ok(None);
        };
        // Another process may take back what it has given.
        let usage = before.as_ref().map_or(Usage::OneLock, |before| before.session().usage);
        let session = self.session(ttl, usage, Purpose::Held).await?;
        let is_here = owner.session == session.id();
        // An earlier request that arrives late moves the lock to the same node.
        let earlier = before.as_ref().and_then(|before| before.moves_to.clone());
        let is_pending = earlier.is_some() || !is_here;
        let moves_to = earlier.unwrap_or_else(|| paths.new_place(holder));
        let own = OwnNode {
            room: session.clone().room(&moves_to),
            path: owner.path.clone(),
            moves_to: is_pending.then(|| moves_to.clone()),
            grant: Some(ownership.grant),
            before: None,
            deletion: before.as_ref().map(|before| before.deletion.clone()).unwrap_or_default(),
            until: Moment::now() + ttl.as_duration(),
        };
        if before.is_none() {
            self.remember(name, holder, own.clone());
        } else if !own_nodes.change(name, holder, |known| *known = own.clone()) {
            return Err(self.unavailable("the lease has ended meanwhile"));
        }
        if !is_here {
            let link = session.connected(&self.ensemble).await?;
            let data = record(ttl, Some(owner.grant));
            let options = CreateMode::Ephemeral.with_acls(self.access());
            let moving = link.transact(|writer| {
                writer.add_delete(&owner.path, None)?;
                writer.add_create(&moves_to, data.as_bytes(), &options)
            });
            moving.await?;
        }
        Ok(Some(own))
    }

    pub(super) async fn reissue_token(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError> {
        let paths = self.paths(name);
        let own = self.shared.own_nodes.find(name, &ownership.holder);
        let connection = self.connected(own.as_ref()).await?;
        loop {
            let seen = View::read_for(&connection, &paths, ownership).await?;
            let Some(owner) = seen.owner_if(ownership) else { return Ok(None) };
            let raised = token(seen.token(owner)?.max(above).as_i64() + 1)?;
            let offset = raised.as_i64() - ownership.grant.as_i64();
            match self.raise(&connection, &paths, &seen, owner, offset).await {
                Ok(()) => return Ok(Some(raised)),
                // Somebody may have deleted the node above.
                Err(Failure::NoNode) if seen.offset_version.is_none() => {
                    self.make_parents(&connection).await?;
                }
                Err(Failure::NoNode | Failure::NodeExists | Failure::BadVersion) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Sets the offset. The oldest place stays the oldest as long as its node exists.
    async fn raise(
        &self,
        connection: &Connection,
        paths: &Paths,
        seen: &View,
        owner: &Place,
        offset: i64,
    ) -> Result<(), Failure> {
        let (path, offset) = (paths.offset(), offset.to_string());
        let options = CreateMode::Persistent.with_acls(self.access());
        let raising = connection.transact(|writer| {
            writer.add_check_version(&owner.path, -1)?;
            match seen.offset_version {
                Some(version) => writer.add_set_data(&path, offset.as_bytes(), Some(version)),
                None => writer.add_create(&path, offset.as_bytes(), &options),
            }
        });
        raising.await
    }
}
