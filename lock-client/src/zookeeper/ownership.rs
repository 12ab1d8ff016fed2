//! What an owner does: it renews, reissues and releases.

use std::sync::Arc;

use fence::{Holder, ResourceName, Token};
use zookeeper_client::CreateMode;

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    nodes::Nodes,
    own_nodes::OwnNode,
    session::Session,
    view::{Place, View, token},
};
use crate::{
    backend::{BackendError, Ownership},
    clock::Moment,
    ttl::Ttl,
};

/// How often a renewal follows a lock to another node.
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
        let (nodes, holder, asked) = (self.nodes(name), &ownership.holder, Moment::now());
        let grant = ownership.grant.as_i64();
        let mut is_where_remembered = true;
        for _ in 0..MOVES {
            // 1. Find the session. If another client has moved the lock to its own session, or if the
            // session is too short, the lock moves to one of this client.
            let remembered = self.shared.own_nodes.get(name, holder);
            let fits = |own_node: &OwnNode| is_where_remembered && own_node.room.session.ttl >= ttl;
            let own_node = match remembered.clone().filter(fits) {
                Some(own_node) => own_node,
                None => {
                    let is_alone = remembered.is_none_or(|own_node| own_node.is_alone);
                    let seen = self.view_for(&nodes, ownership).await?;
                    let Some(owner) = seen.owner_if(holder, grant) else {
                        self.shared.own_nodes.forget(name, holder);
                        return Ok(None);
                    };
                    self.move_to_session(name, owner, ttl, is_alone).await?
                }
            };
            // 2. Prove that the session has had its full time since this renewal began.
            let seen = match self.prove(&own_node, &nodes, asked).await {
                Ok(seen) => seen.map_err(|failure| BackendError::from(failure).after_a_change())?,
                // A leader that was replaced reports so too, and a member of another ensemble. Only the
                // end of its node proves the end of a session.
                Err(Failure::Expired) => {
                    let seen = self.view_behind_write(&nodes).await?;
                    match seen.owner_if(holder, grant) {
                        Some(owner) if owner.path == own_node.path => {
                            return Err(Failure::Expired.into());
                        }
                        _ => own_node.room.session.doubt(),
                    }
                    seen
                }
                // The node is about to go, earlier than the lease knows of.
                Err(Failure::Shortened { .. }) => return Ok(None),
                Err(failure) => return Err(failure.into()),
            };
            // 3. Only the oldest place is the owner's, also after ZooKeeper was restored.
            match seen.owner_if(holder, grant) {
                Some(owner) if owner.path == own_node.path => {
                    self.shared.own_nodes.prolong(name, holder, ttl);
                    return seen.token(owner).map(Some).map_err(BackendError::after_a_change);
                }
                Some(_) => is_where_remembered = false,
                None => {
                    self.shared.own_nodes.forget(name, holder);
                    return Ok(None);
                }
            }
        }
        Err(self.unavailable("the lock was moved to another session meanwhile"))
    }

    /// Proves that the session of a node has had its full time since a moment, and looks behind that.
    async fn prove(
        &self,
        own_node: &OwnNode,
        nodes: &Nodes,
        since: Moment,
    ) -> Result<Result<View, Failure>, Failure> {
        let (session, path) = (&own_node.room.session, own_node.path.as_str());
        let link = session.proven_since(&self.ensemble, since).await?;
        Ok(View::read(&link.connection, nodes, Some(path)).await)
    }

    /// Moves a holder to a session of this client, with another node that keeps the grant, and so the
    /// order. A session's own time-out never changes: an elected leader would not know of it.
    pub(super) async fn move_to_session(
        &self,
        name: &ResourceName,
        place: &Place,
        ttl: Ttl,
        is_alone: bool,
    ) -> Result<OwnNode, BackendError> {
        let holder = &place.holder;
        let session = self.session(ttl, is_alone).await?;
        let path = self.nodes(name).longer_place(holder, place.grant, session.id());
        let own_node = OwnNode {
            room: session.clone().room(&path),
            path,
            is_placed: true,
            is_granted: true,
            is_alone,
            may_have_another: false,
            predecessor: None,
            until: Moment::now() + ttl.as_duration(),
            turn: Arc::default(),
        };
        if place.path != own_node.path {
            // Until there is an answer, the move may arrive late.
            self.shared.own_nodes.change(name, holder, |own_node| own_node.may_have_another = true);
            self.send_move(&session, place, &own_node.path).await?;
        }
        self.shared.own_nodes.remember(name, holder, own_node.clone());
        self.shared.own_nodes.keep(&self.shared, &self.ensemble);
        Ok(own_node)
    }

    async fn send_move(&self, session: &Session, from: &Place, to: &str) -> Result<(), Failure> {
        let link = session.connected(&self.ensemble).await?;
        let connection = &link.connection;
        let record = session.ttl.as_millis().to_string();
        let options = CreateMode::Ephemeral.with_acls(self.access());
        let mut writer = connection.client.new_multi_writer();
        let added = writer
            .add_delete(&from.path, None)
            .and_then(|()| writer.add_create(to, record.as_bytes(), &options));
        added.map_err(|error| connection.failed(error))?;
        connection.answer(writer.commit()).await.map(drop)
    }

    /// Swaps the token for a higher one.
    pub(super) async fn reissue_token(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError> {
        let (nodes, grant) = (self.nodes(name), ownership.grant.as_i64());
        loop {
            let seen = self.view_for(&nodes, ownership).await?;
            let Some(owner) = seen.owner_if(&ownership.holder, grant) else { return Ok(None) };
            let raised = token(seen.token(owner)?.max(above).as_i64() + 1)?;
            let connection = self.ensemble.reading().await?;
            match self.raise(&connection, &nodes, &seen, owner, raised.as_i64() - grant).await {
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
        nodes: &Nodes,
        seen: &View,
        owner: &Place,
        offset: i64,
    ) -> Result<(), Failure> {
        let (path, offset) = (nodes.offset(), offset.to_string());
        let mut writer = connection.client.new_multi_writer();
        let added = writer.add_check_version(&owner.path, -1).and_then(|()| {
            let offset = offset.as_bytes();
            match seen.offset_version {
                Some(version) => writer.add_set_data(&path, offset, Some(version)),
                None => {
                    let options = CreateMode::Persistent.with_acls(self.access());
                    writer.add_create(&path, offset, &options)
                }
            }
        });
        added.map_err(|error| connection.failed(error))?;
        connection.answer(writer.commit()).await.map(drop)
    }

    /// Releases the lock, or leaves the queue, when no other request for the holder is under way.
    pub(super) async fn release_in_turn(
        &self,
        name: &ResourceName,
        holder: &Holder,
    ) -> Result<bool, BackendError> {
        let remembered = self.shared.own_nodes.get(name, holder);
        let turn = remembered.map(|own_node| own_node.turn);
        let _turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        self.release_holder(name, holder).await
    }

    /// Releases the lock, or leaves the queue. Until that is answered, the client repeats it.
    pub(super) async fn release_holder(
        &self,
        name: &ResourceName,
        holder: &Holder,
    ) -> Result<bool, BackendError> {
        let own_nodes = &self.shared.own_nodes;
        let now = Moment::now();
        own_nodes.change(name, holder, |own_node| own_node.until = own_node.until.min(now));
        // 1. Delete the node that the client remembers. It is sent behind the attempt that makes it, over
        // the same connection, or over a later one: then the attempt is rejected.
        if let Some(own_node) = own_nodes.get(name, holder) {
            let mut was_owner = own_node.is_granted;
            if !was_owner && own_node.is_placed {
                // A waiter may own the lock by now, and not know it.
                was_owner = self.view(&self.nodes(name), None).await?.position(holder) == Some(0);
            }
            let deleted = self.delete_own(&own_node).await;
            match &deleted {
                Ok(()) | Err(Failure::NoNode | Failure::Expired) => {}
                // No member gives the session its time any more. Another session can delete the node.
                Err(Failure::Shortened { .. } | Failure::Other(BackendError::Invalid(_))) => {}
                Err(_) => return Ok(deleted.map(|()| false).map_err(Failure::after_a_change)?),
            }
            let is_whole = deleted.is_ok() && !own_node.may_have_another;
            let had_another = match is_whole {
                true => false,
                false => {
                    let others = self.delete_places(name, holder).await;
                    others.map_err(BackendError::after_a_change)?
                }
            };
            own_nodes.forget(name, holder);
            return Ok((was_owner && deleted.is_ok()) || had_another);
        }
        self.delete_places(name, holder).await
    }

    /// Deletes the node of a holder.
    pub(super) async fn delete_own(&self, own_node: &OwnNode) -> Result<(), Failure> {
        let link = own_node.room.session.connected(&self.ensemble).await?;
        let deleted = link.connection.client.delete(&own_node.path, None);
        link.connection.answer(deleted).await
    }

    /// 2. Delete all places of a holder that are seen. After each, look again: before it, a late renewal
    ///    may have moved the holder to another session. After it, none can, because the move needs the
    ///    node that is gone. Returns whether the holder owned the lock.
    async fn delete_places(
        &self,
        name: &ResourceName,
        holder: &Holder,
    ) -> Result<bool, BackendError> {
        let nodes = self.nodes(name);
        let mut was_owner = false;
        let mut has_deleted = false;
        loop {
            // A leader that was just replaced may show what was before the grant.
            let mut seen = self.view(&nodes, None).await?;
            if seen.position(holder) != Some(0) {
                seen = self.view_behind_write(&nodes).await?;
            }
            let Some(place) = seen.place(holder) else { return Ok(was_owner && has_deleted) };
            was_owner |= seen.position(holder) == Some(0);
            let connection = self.ensemble.reading().await?;
            let deleted = connection.answer(connection.client.delete(&place.path, None));
            match deleted.await {
                Ok(()) => has_deleted = true,
                Err(Failure::NoNode) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
    }
}
