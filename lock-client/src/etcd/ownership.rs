//! What an owner does: it renews, and reissues. A release is in `own.rs`.

use fence::Token;

use super::{
    client::Etcd,
    failure::Failure,
    keys::{self, Keys},
    messages::{Compare, KeyValue, Operation, Put, Text, Txn},
    rounds::Renewed,
    session::{Joined, Session},
    view::{Part, View, token},
};
use crate::{
    backend::{BackendError, Ownership},
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
        let known = self.own.get(&place).and_then(|own| own.session);
        let Some(mut session) = (match known {
            Some(session) => Some(session),
            None => self.adopt_session(keys, ownership, seconds).await?,
        }) else {
            return Ok(None);
        };
        loop {
            if !session.serves(seconds) {
                let seconds = seconds.max(session.seconds());
                let joined = match session.is_shared() {
                    true => self.join(seconds, seconds..=seconds, seconds, asked).await?,
                    false => self.begin_own_session(seconds..=i64::MAX, seconds).await?,
                };
                session = joined.session;
            }
            match self.renew_by(&session, keys, ownership).await? {
                Renewed::Full(token) => {
                    self.remember_lock(&place, &session, ttl.as_duration(), asked)?;
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

    /// Returns the session of a lock that another process has acquired. If that process's other locks share
    /// its session, the lock gets one of its own. Returns `None` if the lock is not this ownership's.
    async fn adopt_session(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        seconds: i64,
    ) -> Result<Option<Session>, BackendError> {
        let asked = Moment::now();
        let view = self.held.view(keys, Part::Owner).await?;
        let place = keys.place(&ownership.holder);
        let Some(owner) = view.owner_if(&place, ownership.grant.as_i64()) else { return Ok(None) };
        let alive = match keys::is_shared(owner.lease) {
            false => self.held.keep_alive(owner.lease).await?,
            true => None,
        };
        Ok(Some(match alive {
            Some(alive) => Session::new(alive, asked),
            None => self.begin_own_session(seconds..=i64::MAX, seconds).await?.session,
        }))
    }

    /// Moves a key to another session, and reads the lock. Returns `None` if the key was changed or
    /// deleted meanwhile.
    pub(super) async fn move_key(
        &self,
        keys: &Keys,
        own: &KeyValue,
        joined: &Joined,
    ) -> Result<Option<View>, BackendError> {
        let (place, lease) = (&own.key.0, joined.session.lease());
        let put = Put { key: own.key.clone(), value: Text::default(), lease };
        let success = [&[Operation::Put(put)], &View::reads(keys, Part::Owner)[..]].concat();
        // A move that arrives late fails. Otherwise the key might get a lease that ends sooner.
        let compare = vec![Compare::changed(place.clone(), own.mod_revision)];
        let reply = self.held.transact(&Txn { compare, success, failure: Vec::new() }).await;
        let reply = reply.inspect_err(|failure| {
            // The lease may not exist, such as after a restore.
            if let Failure::NoLease = failure {
                joined.session.give_up();
            }
        })?;
        if !reply.succeeded {
            return Ok(None);
        }
        self.own.change(place, |own| own.session = Some(joined.session.clone()));
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
            let view = self.held.view(keys, Part::Owner).await?;
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
            let raises = Txn { compare, success, failure: Vec::new() };
            if self.held.transact(&raises).await?.succeeded {
                return Ok(Some(raised));
            }
        }
    }
}
