//! The end of a lock: its holder's node is deleted.

use fence::{Holder, ResourceName};

use super::{client::ZooKeeper, failure::Failure, own_nodes::OwnNode, view::View};
use crate::backend::BackendError;

impl ZooKeeper {
    /// Releases the lock, or leaves the queue. Until that is answered, the client repeats it.
    pub(super) async fn release_holder(
        &self,
        name: &ResourceName,
        holder: &Holder,
    ) -> Result<bool, BackendError> {
        let own_nodes = &self.shared.own_nodes;
        // 1. Delete the node that the client remembers. If it exists, there is no other.
        let deletion = own_nodes.find(name, holder).map(|own| own.deletion).unwrap_or_default();
        let _deleting = deletion.lock().await;
        let Some(own) = own_nodes.end(name, holder) else {
            return self.delete_places(name, holder).await;
        };
        let was_owner = match own.grant {
            Some(_) => true,
            // A waiter may own the lock by now, and not know it.
            None => {
                let seen = self.view(&self.paths(name)).await?;
                seen.owner().is_some_and(|owner| owner.path == own.path)
            }
        };
        let was_owner = match self.delete_own(&own).await.map_err(Failure::after_a_change)? {
            true => was_owner,
            false => {
                let deleted = self.delete_places(name, holder).await;
                deleted.map_err(BackendError::after_a_change)?
            }
        };
        own_nodes.forget(name, holder, &own.path);
        Ok(was_owner)
    }

    /// 2. Delete all places of a holder that are seen. After each, look again: before it, a late renewal
    ///    may have moved the holder to another session. After it, none can, because the move needs the
    ///    node that is gone. Returns whether the holder owned the lock.
    async fn delete_places(
        &self,
        name: &ResourceName,
        holder: &Holder,
    ) -> Result<bool, BackendError> {
        let paths = self.paths(name);
        let connection = self.ensemble.reading().await?;
        let (mut was_owner, mut has_deleted) = (false, false);
        loop {
            // A leader that was just replaced may show what was before the grant.
            let mut seen = View::read_synced(&connection, &paths).await?;
            if seen.owner().is_none_or(|owner| owner.holder != *holder) {
                seen = View::read_behind_write(&connection, &paths).await?;
            }
            let Some(at) = seen.queue.iter().position(|place| place.holder == *holder) else {
                return Ok(was_owner && has_deleted);
            };
            was_owner |= at == 0;
            let deleted = connection.answer(connection.client.delete(&seen.queue[at].path, None));
            match deleted.await {
                Ok(()) => has_deleted = true,
                Err(Failure::NoNode) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Deletes a node whose time has passed. Without an answer for a ttl, its session is given up, and the
    /// node goes with the session at last.
    pub(super) async fn delete_ended(
        &self,
        name: &ResourceName,
        holder: &Holder,
        own: &OwnNode,
    ) -> Result<(), BackendError> {
        let session = own.session();
        let _deleting = own.deletion.lock().await;
        let deleting = async { self.delete_own(own).await.map_err(Failure::into) };
        let deleted = self.within(deleting).await;
        if deleted.is_ok() || session.has_expired() {
            self.shared.own_nodes.forget(name, holder, &own.path);
        } else if (own.until + session.ttl.as_duration()).has_passed() {
            session.give_up();
        }
        deleted.map(drop)
    }

    /// Deletes the node of a holder, and returns whether there was one.
    async fn delete_own(&self, own: &OwnNode) -> Result<bool, Failure> {
        // It is sent behind the attempt that makes the node, over the same connection, or over a later
        // one: then the attempt is rejected.
        let connection = self.connected(Some(own)).await?;
        // If the node is gone, a late request that moves it comes too late.
        for path in [Some(&own.path), own.moves_to.as_ref()].into_iter().flatten() {
            match connection.answer(connection.client.delete(path, None)).await {
                Ok(()) => return Ok(true),
                Err(Failure::NoNode) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(false)
    }
}
