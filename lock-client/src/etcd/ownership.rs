//! What an owner does: it renews, reissues and releases.

use fence::{Holder, Token};

use super::{
    client::Etcd,
    keys::Keys,
    leases::whole_seconds,
    messages::{Compare, Delete, Operation, Put, Text, Txn},
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
        let (place, mut lease) = (keys.place(holder), keys.lease(holder));
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
                    let seconds = u128::from(kept.seconds.unsigned_abs());
                    if seconds * 1000 >= u128::from(ttl.as_millis()) {
                        return view.token(owner).map(Some);
                    }
                    match self.move_to_longer_lease(keys, ownership, ttl).await? {
                        Some(longer) => lease = longer,
                        None => return Ok(None),
                    }
                } else {
                    // A renewal for longer has moved the key.
                    lease = owner.lease;
                }
                alive = self.connection.keep_alive(lease).await?;
            }
        };
        renewal.await.map_err(BackendError::after_a_change)
    }

    /// Moves the owner's key to a lease of this ttl, and returns the lease; `None` if the ownership has
    /// ended.
    pub(super) async fn move_to_longer_lease(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<i64>, BackendError> {
        let seconds = whole_seconds(ttl)?;
        let lease = keys.lease_of(&ownership.holder, seconds);
        let alive = self.connection.open_lease(lease, seconds..=seconds).await?;
        let place = keys.place(&ownership.holder);
        let put = Put { key: Text(place.clone()), value: Text::default(), lease };
        let transaction = Txn {
            compare: vec![Compare::created(place, ownership.grant.as_i64())],
            success: vec![Operation::Put(put)],
            failure: Vec::new(),
        };
        let reply = self.transact(&transaction).await?;
        alive.confirm(reply.header, &self.address())?;
        Ok(reply.succeeded.then_some(lease))
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
        let (place, lease) = (keys.place(holder), keys.lease(holder));
        // 1. Delete the own key. No other holder ever has it, whatever its revision.
        let delete = Operation::Delete(Delete { key: Text(place.clone()) });
        let success = [&View::reads(keys, Part::Owner)[..], &[delete]].concat();
        let reply = self.transact(&Txn { success, ..Txn::default() }).await?;
        let view = View::parse(reply).map_err(BackendError::after_a_change)?;
        let owned = view.owner().filter(|owner| owner.key.0 == place);
        // 2. Revoke the lease of all attempts. An attempt that arrives later has no lease, and fails.
        self.connection.revoke(lease).await.map_err(BackendError::after_a_change)?;
        if let Some(longer) = owned.map(|owner| owner.lease).filter(|&longer| longer != lease) {
            self.connection.revoke(longer).await.map_err(BackendError::after_a_change)?;
        }
        Ok(owned.is_some())
    }
}
