//! What an owner does: it renews, reissues and releases.

use std::mem::replace;

use fence::{Holder, ResourceName, Token};
use tokio::{join, sync::OwnedSemaphorePermit};

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    messages::{Kind, Request},
    nodes::Nodes,
    own_nodes::OwnNode,
    session::{End, Session},
    view::{Part, Place, View, token},
};
use crate::{
    backend::{BackendError, Ownership},
    ttl::Ttl,
};

impl ZooKeeper {
    /// Renews an ownership: goes on with its session, and only then checks whose the lock is.
    pub(super) async fn renew_ownership(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        let (nodes, holder) = (self.nodes(name), &ownership.holder);
        let grant = ownership.grant.as_i64();
        let mut remembered = self.own_nodes.get(name, holder);
        let mut longer = None;
        let (connection, view, turn, is_own) = loop {
            // 1. Find the session. If another client has acquired the lock, or has moved it to a longer
            // session, the owner's node shows it.
            let is_remembered = remembered.is_some();
            let own_node = match remembered.take() {
                Some(own_node) => own_node,
                None => match self.view_for(&nodes, ownership).await?.owner_if(holder, grant) {
                    Some(owner) => OwnNode::from(owner),
                    None => return Ok(None),
                },
            };
            // 2. Set its full time. If it is too short, there must be a longer one, before anything is
            // changed.
            let turn = self.renewal_turn().await;
            if own_node.session.timeout_ms < ttl.as_millis() && longer.is_none() {
                longer = Some(self.ensemble.open_session(ttl).await?);
            }
            match self.keep_alive(&nodes, &own_node).await {
                Ok((connection, view)) => {
                    self.own_nodes.remember(name, holder, own_node);
                    break (connection, view, turn, is_remembered);
                }
                Err(Failure::Expired | Failure::NoNode) if is_remembered => {}
                // A leader that was replaced reports so too, and a member of another ensemble. Only the
                // end of its node proves the end of a session.
                Err(Failure::Expired) => {
                    let seen = self.view_behind_write(&nodes, Part::All).await?;
                    return match seen.owner_if(holder, grant) {
                        None => Ok(None),
                        Some(_) => Err(Failure::Expired.into()),
                    };
                }
                // The node is about to go, earlier than the lease knows of.
                Err(Failure::Shortened { .. }) => return Ok(None),
                Err(failure) => return Err(failure.into()),
            }
        };
        // 3. Only the oldest place is the owner's, also after ZooKeeper was restored. The session has its
        // full time again, whatever follows.
        let view = view.map_err(|failure| BackendError::from(failure).after_a_change())?;
        let Some(owner) = view.owner_if(holder, grant) else { return Ok(None) };
        if owner.session.id != connection.session.id {
            // An earlier renewal has just moved the lock to a longer session, whose time was not set.
            self.own_nodes.remember(name, holder, OwnNode::from(owner));
            return Err(self.unavailable("the lock was moved to another session meanwhile"));
        }
        if let Some(longer) = longer {
            if owner.session.timeout_ms < ttl.as_millis() {
                let moved = self.move_to_session(name, &longer, owner).await;
                moved.map_err(|failure| BackendError::from(failure).after_a_change())?;
                // That of another client expires. ZooKeeper would give it no answer if it went on with
                // the session while that is closed.
                if is_own {
                    close_in_background(connection, turn);
                }
            } else {
                // An earlier renewal, without an answer, has moved the lock already.
                close_in_background(longer, turn);
            }
        }
        view.token(owner).map(Some).map_err(BackendError::after_a_change)
    }

    /// Goes on with a session, and checks that its node exists. The look is behind the check.
    async fn keep_alive(
        &self,
        nodes: &Nodes,
        own_node: &OwnNode,
    ) -> Result<(Connection, Result<View, Failure>), Failure> {
        let connection = self.ensemble.resume(&own_node.session).await?;
        let (checked, view) = look_behind_check(&connection, nodes, &own_node.path).await;
        checked.map(|()| (connection, view)).map_err(Failure::after_a_change)
    }

    /// Moves an owner to a session that lasts longer, with another node that keeps the grant. A
    /// session's own time-out never changes: an elected leader would not know of it.
    pub(super) async fn move_to_session(
        &self,
        name: &ResourceName,
        longer: &Connection,
        owner: &Place,
    ) -> Result<(), Failure> {
        let session = longer.session.clone();
        let path = self.nodes(name).longer_place(&owner.holder, owner.grant, session.id);
        let record = session.record();
        let create = Request::create(&path, &record, Kind::Ephemeral, self.access());
        // Until there is an answer, the move may arrive late.
        let mut may_get_another = true;
        self.own_nodes.change(name, &owner.holder, |own_node| {
            may_get_another = replace(&mut own_node.may_get_another, true);
        });
        longer.transact(&[Request::delete(&owner.path), create]).await?;
        let own_node = OwnNode { may_get_another, ..OwnNode::new(session, path) };
        self.own_nodes.remember(name, &owner.holder, own_node);
        Ok(())
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
            let (path, offset) = (nodes.offset(), (raised.as_i64() - grant).to_string());
            let write = match seen.offset_version {
                Some(version) => Request::set_data_at(&path, &offset, version),
                None => Request::create(&path, &offset, Kind::Persistent, self.access()),
            };
            // The oldest place stays the oldest as long as its node exists.
            let connection = self.ensemble.reading().await?;
            match connection.transact(&[Request::check(&owner.path), write]).await {
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

    /// Releases the lock, or leaves the queue.
    pub(super) async fn release_holder(
        &self,
        name: &ResourceName,
        holder: &Holder,
        was_granted: bool,
    ) -> Result<bool, BackendError> {
        let nodes = self.nodes(name);
        let remembered = self.own_nodes.get(name, holder);
        // 1. See whether the holder owns the lock, as long as its node exists. Connect meanwhile.
        let own_path = remembered.as_ref().map(|own_node| own_node.path.as_str());
        let looking = self.view(&nodes, Part::All, own_path);
        let resuming = async {
            let Some(own_node) = &remembered else { return None };
            let turn = self.release_turn().await;
            Some((self.ensemble.resume_to_end(&own_node.session).await, own_node, turn))
        };
        let (mut looked, resumed) = join!(looking, resuming);
        // 2. End the remembered session, also if the look failed: it would block the lock until its ttl
        // ends. Its end deletes its node. An attempt that arrives later fails.
        let mut closed_session = None;
        let mut may_have_another = true;
        if let Some((resumed, own_node, _turn)) = resumed {
            match resumed {
                Ok(connection) => {
                    // A leader that was just replaced may show what was before the grant.
                    let is_hidden = |seen: &View| seen.position(holder) != Some(0);
                    if was_granted && looked.as_ref().is_ok_and(is_hidden) {
                        let path = &own_node.path;
                        looked = match look_behind_check(&connection, &nodes, path).await {
                            // A check that fails goes through a quorum, too.
                            (Ok(()) | Err(Failure::NoNode), look) => look,
                            (Err(failure), _) => Err(failure),
                        };
                    }
                    // To go on with the session has set its full time.
                    let end = connection.close_session().await.map_err(Failure::after_a_change)?;
                    closed_session = (end == End::Closed).then_some(own_node.session.id);
                    // A renewal that went on until now has changed what is remembered.
                    let present = self.own_nodes.get(name, holder);
                    may_have_another = present.is_none_or(|present| {
                        present.may_get_another || present.session.id != own_node.session.id
                    });
                }
                Err(Failure::Expired) => {}
                Err(failure) => return Err(failure.into()),
            }
            self.own_nodes.forget(name, holder);
        }
        // 3. End all others. After each end, look again: before it, a late renewal may have moved the
        // holder to a longer session. After it, none can: the move needs the node that is gone.
        let mut seen = match looked.map_err(BackendError::from) {
            Err(error) if closed_session.is_some() => return Err(error.after_a_change()),
            looked => looked?,
        };
        let ending = async {
            // A leader that was just replaced may show what was before the grant, or a lock that has
            // ended since. It can't end a session.
            let is_proven = seen.place(holder).is_some_and(|place| match remembered {
                Some(_) => closed_session == Some(place.session.id),
                None => seen.position(holder) == Some(0),
            });
            if !is_proven {
                seen = self.view_behind_write(&nodes, Part::All).await?;
            }
            let was_owner = seen.position(holder) == Some(0);
            let mut has_closed_any = closed_session.is_some();
            // No request of another node was sent.
            if is_proven && has_closed_any && !may_have_another && seen.places(holder) == 1 {
                return Ok(was_owner);
            }
            while let Some(place) = seen.place(holder) {
                let session = place.session.id;
                let is_new = closed_session.take() != Some(session);
                let end = match is_new {
                    true => self.end_session(&place.session).await?,
                    false => End::Closed,
                };
                has_closed_any |= end == End::Closed;
                seen = match end {
                    End::Closed => self.view(&nodes, Part::Holder(holder), None).await?,
                    // Only the end of its node proves the end of a session.
                    End::Expired => self.view_behind_write(&nodes, Part::Holder(holder)).await?,
                };
                if is_new && seen.place(holder).is_some_and(|left| left.session.id == session) {
                    return Err(self.unavailable("a session has ended, and its node has not"));
                }
            }
            Ok(was_owner && has_closed_any)
        };
        ending.await.map_err(BackendError::after_a_change)
    }

    async fn end_session(&self, session: &Session) -> Result<End, Failure> {
        let _turn = self.release_turn().await;
        match self.ensemble.resume_to_end(session).await {
            Ok(connection) => connection.close_session().await,
            Err(Failure::Expired) => Ok(End::Expired),
            Err(failure) => Err(failure),
        }
    }
}

/// Checks that a node exists, and looks behind the check.
async fn look_behind_check(
    connection: &Connection,
    nodes: &Nodes,
    path: &str,
) -> (Result<(), Failure>, Result<View, Failure>) {
    let checked = connection.check(path);
    join!(checked, View::read(connection, nodes, Part::All, Some(path)))
}

/// Ends a session that has no node any more. If this fails, it expires.
pub(super) fn close_in_background(connection: Connection, turn: OwnedSemaphorePermit) {
    tokio::spawn(async move {
        let _ = connection.close_session().await;
        drop(turn);
    });
}
