//! What an owner does: it renews, reissues and releases.

use fence::{Holder, Token};
use tokio::time::timeout;

use super::{
    attempt::MAY_HAVE_QUEUED,
    client::Etcd,
    keys::{self, Keys},
    leases::Alive,
    messages::{Compare, Delete, KeyValue, Operation, Put, Text, Txn},
    view::{Part, View, token},
};
use crate::{
    backend::{Backend, BackendError, Ownership},
    ttl::Ttl,
};

impl Etcd {
    /// Renews an ownership: keeps its lease alive, and only then checks whose the lock is.
    pub(super) async fn renew_ownership(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        let (holder, created) = (&ownership.holder, ownership.grant.as_i64());
        let seconds = ttl.as_millis().div_ceil(1000).cast_signed();
        // The lease of an earlier renewal. The lock may still be on a shared one, or on one of another
        // duration.
        let (place, mut lease) = (keys.place(holder), keys.lease_of(holder, seconds));
        let mut alive = self.connection.keep_alive(lease).await?;
        // From here on, the lock may last longer, whatever follows.
        let renewal = async {
            loop {
                let view = self.view(keys, Part::Owner).await?;
                let Some(owner) = view.owner_if(&place, created) else { return Ok(None) };
                if owner.lease == lease {
                    // The lock's last moment: its lease has ended, and the key is about to go.
                    let ended = || self.unavailable("the lease has ended");
                    let kept = alive.ok_or_else(ended)?;
                    kept.confirm(view.header, &self.address())?;
                    // It may live for longer than asked.
                    if kept.seconds >= seconds {
                        return view.token(owner).map(Some);
                    }
                }
                lease = if owner.lease == lease || keys::is_shared(owner.lease) {
                    // The lease's duration can't be changed.
                    let id = keys.lease_of(holder, seconds);
                    let longer =
                        self.connection.open_lease(id, seconds..=i64::MAX, seconds).await?;
                    self.move_key(owner, longer).await?;
                    id
                } else {
                    owner.lease
                };
                alive = self.connection.keep_alive(lease).await?;
            }
        };
        renewal.await.map_err(BackendError::after_a_change)
    }

    /// Moves the owner's key to another lease. Returns whether it did.
    pub(super) async fn move_key(
        &self,
        owner: &KeyValue,
        lease: Alive,
    ) -> Result<bool, BackendError> {
        let put = Put { key: owner.key.clone(), value: owner.value.clone(), lease: lease.id };
        let transaction = Txn {
            // A move that arrives late fails. Otherwise the key might get a lease that ends sooner.
            compare: vec![Compare::changed(owner.key.0.clone(), owner.mod_revision)],
            success: vec![Operation::Put(put)],
            failure: Vec::new(),
        };
        let reply = self.transact(&transaction).await?;
        lease.confirm(reply.header, &self.address())?;
        Ok(reply.succeeded)
    }

    /// Swaps the token for a higher one.
    pub(super) async fn reissue_token(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError> {
        let created = ownership.grant.as_i64();
        let place = keys.place(&ownership.holder);
        loop {
            let view = self.view(keys, Part::Owner).await?;
            let Some(owner) = view.owner_if(&place, created) else { return Ok(None) };
            let raised = token(view.token(owner)?.max(above).as_i64() + 1)?;
            // The key that is the oldest stays the oldest as long as it exists.
            let compare = vec![
                Compare::created(place.clone(), created),
                Compare::changed(keys.offset(), view.offset_revision),
            ];
            let value = Text((raised.as_i64() - created).to_string());
            let put = Put { key: Text(keys.offset()), value, lease: 0 };
            let success = vec![Operation::Put(put)];
            if self.transact(&Txn { compare, success, failure: Vec::new() }).await?.succeeded {
                return Ok(Some(raised));
            }
        }
    }

    /// Releases the lock, or leaves the queue.
    pub(super) async fn release_holder(
        &self,
        keys: &Keys,
        holder: &Holder,
    ) -> Result<bool, BackendError> {
        // 1. No attempt of the holder on a shared lease may succeed later. etcd may have no space for
        // that, or others may be waiting to do the same.
        let place = keys.place(holder);
        let closing = timeout(self.answer_timeout(), self.close_unanswered(&place));
        let closed = closing.await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")));
        // 2. Delete what there is, in any case.
        let deleted = self.delete_place(keys, holder).await?;
        // 3. An attempt whose key was deleted does not arrive later.
        if let Some(lease) = deleted {
            self.shared.forget_unanswered(lease, &place);
        }
        if !self.shared.unanswered(&place).is_empty() {
            closed.map_err(BackendError::after_a_change)?;
        }
        Ok(deleted.is_some())
    }

    /// Deletes a holder's key and its own leases. Returns the key's lease if it was the owner's.
    async fn delete_place(
        &self,
        keys: &Keys,
        holder: &Holder,
    ) -> Result<Option<i64>, BackendError> {
        let (place, lease) = (keys.place(holder), keys.lease(holder));
        let may_queue_later = self.waiters.forget(&place);
        // 1. Delete the own key. No other holder ever has it, whatever its revision.
        let delete = Operation::Delete(Delete { key: Text(place.clone()) });
        let success = vec![View::read_of_queue(keys, Part::Owner), delete];
        let reply = self.transact(&Txn { success, ..Txn::default() }).await?;
        let view = View::parse(reply).map_err(BackendError::after_a_change)?;
        let owned = view.owner().filter(|owner| owner.key.0 == place);
        // 2. Revoke the waiter's lease. A request to queue that arrives later has no lease, and fails. If
        // there is none under way, the lease ends soon by itself.
        if may_queue_later && owned.is_none_or(|owner| owner.value.0 == MAY_HAVE_QUEUED) {
            self.connection.revoke(lease).await.map_err(BackendError::after_a_change)?;
        }
        // 3. Revoke the lease of an owner that has renewed.
        let owned = owned.map(|owner| owner.lease);
        if let Some(own) = owned.filter(|&own| !keys::is_shared(own) && own != lease) {
            self.connection.revoke(own).await.map_err(BackendError::after_a_change)?;
        }
        Ok(owned)
    }
}
