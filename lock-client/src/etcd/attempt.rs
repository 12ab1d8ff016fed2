//! One attempt to acquire a lock.

use std::time::Duration;

use fence::{Holder, ResourceName};
use serde_json::Value;

use super::{
    client::{Etcd, LONGEST_METHOD},
    failure::Failure,
    http::Line,
    keys::{self, Keys},
    messages::{KeyValue, Txn, TxnReply, is_changed, is_created, none_exists, none_is_before, put},
    own_keys::OwnKey,
    session::{Joined, Session, begin_session, whole_seconds},
    view::{Part, View},
};
use crate::{
    backend::{Attempt, Backend, BackendError, Contention, Ownership, token},
    clock::Moment,
    terms::{LONGEST_SLEEP, Order, PLACE_PATIENCE},
    ttl::Ttl,
};

/// A lock joins a session without a keep-alive of its own within this part of the ttl after the
/// last one.
const JOINABLE_PART: u32 = 30;
/// The same, at most. The lock's deadline counts from that keep-alive.
const LONGEST_JOINABLE: Duration = Duration::from_millis(500);

/// What the session of a lock is shared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The client's other locks of this ttl.
    Client,
    /// Nothing. Another process may take the lock over.
    Nothing,
}

struct Try<'a> {
    etcd: &'a Etcd,
    keys: Keys,
    place: String,
    holder: &'a Holder,
    ttl: Ttl,
    seconds: i64,
    order: Order,
    sharing: Sharing,
    asked: Moment,
    /// The key may join a session without a keep-alive that was kept alive since this moment.
    just_before: Moment,
}

impl Etcd {
    pub(super) async fn acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
        sharing: Sharing,
    ) -> Result<Attempt, BackendError> {
        let seconds = whole_seconds(ttl)?;
        let (keys, asked) = (Keys::new(name), Moment::now());
        // 1. From here on, the key is deleted in time. A waiter that tries no more must not delay
        // the others.
        let (place, ttl_ends) = (keys.place(holder), asked + ttl.as_duration());
        let waits_until = asked + ttl.as_duration().min(PLACE_PATIENCE);
        let deadline = match order {
            Order::Fair => waits_until + self.answer_timeout() * LONGEST_METHOD,
            Order::Unordered => ttl_ends,
        };
        let known = self.remember(&place, ttl.as_duration(), deadline)?;
        let joinable = (ttl.as_duration() / JOINABLE_PART).min(LONGEST_JOINABLE);
        let just_before = asked.checked_sub(joinable).unwrap_or(asked);
        let etcd = self;
        let attempt =
            Try { etcd, keys, place, holder, ttl, seconds, order, sharing, asked, just_before };
        // 2. Try.
        let outcome = attempt.run(known).await;
        // 3. A holder without a key, and without a request that may make one, is forgotten.
        let place = &attempt.place;
        match self.own.get(place) {
            Some(own) if own.session.is_none() && own.late.is_none() => self.own.forget(place),
            _ if matches!(outcome, Ok(Attempt::Busy(_))) => {
                self.own.advance_deadline(place, waits_until)
            }
            _ => {}
        }
        outcome
    }
}

impl Try<'_> {
    async fn run(&self, known: OwnKey) -> Result<Attempt, BackendError> {
        // 1. An earlier attempt without an answer may have put the own key. Otherwise it must not
        // do so after this one: another client may release the lock that this one acquires, and
        // knows of no earlier attempts.
        if let Some(session) = &known.late {
            let view = self.etcd.tries.view(&self.keys, Part::All).await?;
            let position = view.position(&self.place);
            if position.is_none() {
                self.etcd.seal(session).await?;
            }
            self.etcd.own.change(&self.place, |own| {
                own.session = position.and(own.late.take());
                own.late = None;
            });
            if position == Some(0) {
                let granted = self.renew_grant(&view.queue[0]).await;
                return granted.map_err(BackendError::after_a_change);
            }
        }
        // 2. Take the lock, if nobody else is in the queue, or it seems to be the own turn. Only a
        // new holder has no key for certain.
        let is_new = known.session.is_none() && known.late.is_none();
        let (mut view, joined) = match &known.turn {
            Some(own) => self.take_turn(own).await.map_err(BackendError::after_a_change)?,
            None if is_new && self.order == Order::Unordered && self.sharing == Sharing::Client => {
                self.put_first().await?
            }
            None => {
                // A transaction that may put goes to the disk, and this read does not. Nor is a
                // session begun for a lock that is held.
                let view = self.etcd.tries.view(&self.keys, Part::All).await?;
                if view.owner().is_some() { (view, None) } else { self.put_first().await? }
            }
        };
        // 3. In the fair order, queue behind the others, or keep the place there.
        if self.order == Order::Fair {
            match view.position(&self.place) {
                Some(0) => {}
                Some(place) => self.stay_in_place(&view.queue[place]).await?,
                None => view = self.put_last().await?,
            }
        }
        self.outcome(view, joined).await.map_err(BackendError::after_a_change)
    }

    async fn session(&self, since: Moment) -> Result<Joined, BackendError> {
        let seconds = self.seconds..=self.seconds;
        match self.sharing {
            Sharing::Client => self.etcd.join(&self.etcd.tries, seconds, since).await,
            Sharing::Nothing => begin_session(&self.etcd.tries, keys::own_lease(), seconds).await,
        }
    }

    /// Returns the session for the key of a waiter. It is short, because only an owner needs the
    /// whole ttl.
    async fn waiting_session(&self, since: Moment) -> Result<Joined, BackendError> {
        let shortest = self.seconds.min(PLACE_PATIENCE.as_secs().cast_signed());
        self.etcd.join(&self.etcd.tries, shortest..=self.seconds, since).await
    }

    /// Whether an owner's key may live by this session. A waiter's may be on another.
    fn serves_owner(&self, session: &Session) -> bool {
        let may_be_shared = self.sharing == Sharing::Client;
        session.serves(self.seconds) && (may_be_shared || !session.is_shared())
    }

    /// Keeps the session of the own key alive, if it is known and serves.
    async fn keep_own_alive(
        &self,
        own: &KeyValue,
        serves: impl Fn(&Session) -> bool,
    ) -> Result<Option<Joined>, BackendError> {
        let session = self.etcd.own.get(&self.place).and_then(|own| own.session);
        match session.filter(|it| it.lease == own.lease && serves(it)) {
            Some(session) => self.etcd.keep_alive(&self.etcd.tries, &session, self.asked).await,
            None => Ok(None),
        }
    }

    /// Puts the own key if nobody else is in the queue. The same transaction shows whether it did,
    /// and reads the offset: one that was read earlier may have been raised since, by an owner
    /// before this one. Returns the session if the key was put.
    async fn put_first(&self) -> Result<(View, Option<Joined>), BackendError> {
        loop {
            let joined = self.session(self.just_before).await?;
            let nobody = none_exists(&self.keys.queue(), &self.keys.queue_end());
            match self.make_key(&joined, nobody, Part::Owner).await? {
                Some((view, has_put)) if view.owner().is_some() => {
                    return Ok((view, self.used(joined, has_put).await));
                }
                // The session has ended, or is sealed.
                _ => joined.session.close(),
            }
        }
    }

    async fn put_last(&self) -> Result<View, BackendError> {
        loop {
            let joined = self.waiting_session(self.just_before).await?;
            let absent = is_created(&self.place, 0);
            match self.make_key(&joined, absent, Part::All).await? {
                Some((view, _)) if view.position(&self.place).is_some() => return Ok(view),
                _ => joined.session.close(),
            }
        }
    }

    /// Keeps the session of a waiter's key alive. If that has ended, the key moves.
    async fn stay_in_place(&self, own: &KeyValue) -> Result<(), BackendError> {
        if self.keep_own_alive(own, |it| it.serves(0)).await?.is_none() {
            let joined = self.waiting_session(self.asked).await?;
            self.etcd.move_key(&self.etcd.tries, &self.keys, own, &joined).await?;
        }
        Ok(())
    }

    /// Moves the own key to the session of an owner's, if it is the oldest. A watch has shown that
    /// the owner's key is gone, but only the transaction decides. If it arrives late, the key was
    /// changed or deleted meanwhile.
    async fn take_turn(&self, own: &KeyValue) -> Result<(View, Option<Joined>), BackendError> {
        let joined = self.session(self.just_before).await?;
        let compare = vec![
            is_changed(&self.place, own.mod_revision),
            none_is_before(&self.keys.queue(), &self.keys.queue_end(), own.create_revision),
        ];
        let line = self.etcd.tries.line().await?;
        let reply = self.put(line, &joined, compare, Part::Owner).await?;
        let (view, has_put) = self.seen(&joined, reply)?;
        Ok((view, self.used(joined, has_put).await))
    }

    /// Returns the session if the key was put on it. One that nothing shares ends otherwise.
    async fn used(&self, joined: Joined, has_put: bool) -> Option<Joined> {
        if has_put {
            return Some(joined);
        }
        if !joined.session.is_shared() {
            // Without an answer, it ends with its time.
            let _ended_or_not = self.etcd.tries.revoke(joined.session.lease).await;
        }
        None
    }

    /// Puts the own key, which does not exist, unless the session is sealed. Until this is
    /// answered, it may arrive later. Returns `None` if the session does not exist, such as after a
    /// restore.
    async fn make_key(
        &self,
        joined: &Joined,
        compare: Value,
        part: Part,
    ) -> Result<Option<(View, bool)>, BackendError> {
        // Without a connection, it is not sent.
        let line = self.etcd.tries.line().await?;
        self.etcd.remember_put(&self.place, &joined.session)?;
        let unsealed = is_created(&keys::seal(joined.session.lease), 0);
        let reply = self.put(line, joined, vec![compare, unsealed], part).await;
        if !reply.as_ref().is_err_and(Failure::leaves_it_under_way) {
            self.etcd.own.change(&self.place, |own| own.late = None);
        }
        match reply {
            Err(Failure::NoLease) => Ok(None),
            reply => self.seen(joined, reply?).map(Some),
        }
    }

    /// Puts the own key on a session if the comparisons hold, and reads this part of the lock.
    /// Otherwise, this reads all of it.
    async fn put(
        &self,
        line: Line,
        joined: &Joined,
        compare: Vec<Value>,
        part: Part,
    ) -> Result<TxnReply, Failure> {
        let session = &joined.session;
        let put = put(&self.place, "", session.lease);
        let success = [&[put], &View::reads(&self.keys, part)[..]].concat();
        let failure = View::reads(&self.keys, Part::All).to_vec();
        let put = Txn { compare, success, failure };
        let put = self.etcd.tries.transact_over(line, &put).await;
        match &put {
            Ok(reply) if !reply.succeeded => {}
            Ok(_) | Err(Failure::NoSpace(_)) => {
                let session = Some(session.clone());
                self.etcd.own.change(&self.place, |own| own.session = session);
            }
            Err(Failure::NoLease) => session.give_up(),
            Err(_) => {}
        }
        put
    }

    fn seen(&self, joined: &Joined, reply: TxnReply) -> Result<(View, bool), BackendError> {
        let has_put = reply.succeeded;
        let view = View::parse(reply).map_err(BackendError::after_a_change)?;
        joined.confirm(view.header, self.etcd)?;
        Ok((view, has_put))
    }

    /// The oldest key is the owner's. The attempt may have put it on this session.
    async fn outcome(&self, view: View, joined: Option<Joined>) -> Result<Attempt, BackendError> {
        let Some(owner) = view.owner() else {
            return Err(self.etcd.unavailable("the queue is empty after a put"));
        };
        let position = view.position(&self.place);
        if position.is_none() {
            self.etcd.own.change(&self.place, |own| own.session = None);
        }
        match (position, joined) {
            (Some(0), Some(joined)) => self.granted(&view, owner, &joined).await,
            // It has waited, or an earlier attempt has put the key.
            (Some(0), None) => self.renew_grant(owner).await,
            _ => Ok(Attempt::Busy(Contention {
                remaining: self.etcd.remaining(owner).await?,
                // The oldest key is no waiter's.
                ahead: position.and_then(|older| (older - 1).try_into().ok()),
                nap: position.map(|_| (self.ttl.as_duration() / 3).min(LONGEST_SLEEP)),
            })),
        }
    }

    /// Sets the full ttl of the own key, which is the oldest.
    async fn renew_grant(&self, owner: &KeyValue) -> Result<Attempt, BackendError> {
        // 1. Keep the session alive, or move the key to another. Only then look whose the lock is.
        let joined = match self.keep_own_alive(owner, |it| self.serves_owner(it)).await? {
            Some(joined) => joined,
            None => self.session(self.asked).await?,
        };
        let lease = joined.session.lease;
        let view = if owner.lease == lease {
            let view = self.etcd.tries.view(&self.keys, Part::Owner).await?;
            joined.confirm(view.header, self.etcd)?;
            Some(view)
        } else {
            self.etcd.move_key(&self.etcd.tries, &self.keys, owner, &joined).await?
        };
        // 2. It may have ended meanwhile.
        if let Some(view) = view
            && let Some(owner) = view.owner_if(&self.place, owner.create_revision)
            && owner.lease == lease
        {
            return self.granted(&view, owner, &joined).await;
        }
        Err(self.etcd.unavailable("the lock has just expired, or was moved"))
    }

    async fn granted(
        &self,
        view: &View,
        owner: &KeyValue,
        joined: &Joined,
    ) -> Result<Attempt, BackendError> {
        let (token, grant) = (view.token(owner)?, token(owner.create_revision)?);
        let (ttl, asked) = (self.ttl.as_duration(), joined.alive.asked.min(self.asked));
        self.etcd.remember_lock(&self.place, &joined.session, ttl, asked)?;
        // What a renewal needs exists before the grant is reported.
        self.etcd.keep_connections_after_a_try().await?;
        let ownership = Ownership { holder: self.holder.clone(), grant };
        Ok(Attempt::Granted { token, ownership, asked })
    }
}
