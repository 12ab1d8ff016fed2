//! What an owner does: it renews, reissues and releases.

use fence::Token;
use tokio::time::timeout;

use super::{
    client::Etcd,
    keys::{self, Keys},
    messages::{Compare, Delete, KeyValue, Operation, Put, Text, Txn},
    rounds::Renewed,
    session::Joined,
    view::{Part, View, token},
};
use crate::{
    backend::{Backend, BackendError, Ownership},
    clock::Moment,
    ttl::Ttl,
};

impl Etcd {
    /// Renews an ownership: keeps its session alive, and only then checks whose the lock is.
    pub(super) async fn renew_ownership(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        let (asked, place) = (Moment::now(), keys.place(&ownership.holder));
        let seconds = ttl.as_millis().div_ceil(1000).cast_signed();
        let Some(mut session) = self.own.session(&place) else {
            let renewal = self.renew_alone(keys, ownership, seconds);
            return renewal.await.map_err(BackendError::after_a_change);
        };
        loop {
            if !session.serves(seconds) {
                let seconds = seconds.max(session.seconds());
                session = self.join(seconds, seconds..=seconds, seconds, asked).await?.session;
                self.own.set_session(&place, &session);
            }
            match self.renew_by(&session, keys, ownership).await? {
                Renewed::Full(token) => {
                    self.own.set_until(&place, asked + ttl.as_duration());
                    return Ok(Some(token));
                }
                Renewed::NotOurs => return Ok(None),
                // Its session was given up, or is shorter than this ttl.
                Renewed::Elsewhere(owner) => {
                    if let Some(joined) = self.keep(&session, asked).await? {
                        let moved = self.move_key(keys, &owner, &joined).await;
                        moved.map_err(BackendError::after_a_change)?;
                    }
                }
            }
        }
    }

    /// Renews a lock with a lease of its own, which another process may have acquired. A lock on another
    /// process's session gets one.
    async fn renew_alone(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        seconds: i64,
    ) -> Result<Option<Token>, BackendError> {
        let (place, created) = (keys.place(&ownership.holder), ownership.grant.as_i64());
        let view = async || self.view(keys, Part::Owner).await;
        let mut before = view().await?;
        loop {
            let Some(owner) = before.owner_if(&place, created) else { return Ok(None) };
            let alive = match keys::is_shared(owner.lease) {
                false => self.connection.keep_alive(owner.lease).await?,
                true => None,
            };
            if let Some(alive) = alive.filter(|alive| alive.seconds >= seconds) {
                let after = view().await?;
                alive.confirm(after.header, &self.address())?;
                match after.owner_if(&place, created) {
                    Some(owner) if owner.lease == alive.id => {
                        return after.token(owner).map(Some);
                    }
                    _ => before = after,
                }
                continue;
            }
            // A lease's duration can't be changed.
            let longer = self.begin_session(keys::own_lease(), seconds..=i64::MAX, seconds).await?;
            self.move_key(keys, owner, &longer).await?;
            before = view().await?;
        }
    }

    /// Moves a key to another session, and reads the lock. Returns `None` if the key was changed or
    /// deleted meanwhile.
    pub(super) async fn move_key(
        &self,
        keys: &Keys,
        own: &KeyValue,
        joined: &Joined,
    ) -> Result<Option<View>, BackendError> {
        let lease = joined.session.lease();
        let put = Put { key: own.key.clone(), value: Text::default(), lease };
        let success = [&[Operation::Put(put)], &View::reads(keys, Part::Owner)[..]].concat();
        // A move that arrives late fails. Otherwise the key might get a lease that ends sooner.
        let compare = vec![Compare::changed(own.key.0.clone(), own.mod_revision)];
        let reply = self.transact(&Txn { compare, success, failure: Vec::new() }).await;
        // The lease may not exist, such as after a restore.
        let reply = reply.inspect_err(|_| joined.session.give_up())?;
        if !reply.succeeded {
            return Ok(None);
        }
        let view = View::parse(reply).map_err(BackendError::after_a_change)?;
        joined.confirm(view.header, self)?;
        Ok(Some(view))
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

    /// Deletes a holder's key, and lets no request succeed later that puts it. Returns whether it was
    /// the owner's.
    pub(super) async fn delete_place(
        &self,
        keys: &Keys,
        place: &str,
    ) -> Result<bool, BackendError> {
        // 1. No attempt of the holder may succeed later. etcd may have no space for that, or others may
        // be waiting to do the same.
        let late = self.own.late(place);
        let cutting = timeout(self.answer_timeout(), self.cut_off(&late));
        let cut = cutting.await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")));
        // 2. Delete the own key, in any case. No other holder ever has it, whatever its revision.
        let delete = Operation::Delete(Delete { key: Text(place.to_owned()) });
        let success = vec![View::read_of_queue(keys, Part::Owner), delete];
        let reply = self.transact(&Txn { success, ..Txn::default() }).await?;
        let view = View::parse(reply).map_err(BackendError::after_a_change)?;
        let owned = view.owner().filter(|owner| owner.key.0 == place).map(|owner| owner.lease);
        // 3. An attempt whose key was deleted does not arrive later.
        if !late.iter().all(|late| owned == Some(late.session.lease())) {
            cut.map_err(BackendError::after_a_change)?;
        }
        // 4. A lease that no other lock shares ends with its lock.
        if let Some(own) = owned.filter(|&own| !keys::is_shared(own)) {
            self.connection.revoke(own).await.map_err(BackendError::after_a_change)?;
        }
        Ok(owned.is_some())
    }
}
