//! One attempt to acquire a lock.

use std::time::Duration;

use fence::{Holder, ResourceName};

use super::{
    client::Etcd,
    failure::Failure,
    keys::{self, Keys},
    leases::whole_seconds,
    messages::{Compare, KeyValue, Operation, Put, Text, Txn, TxnReply},
    own::OwnKey,
    session::{Joined, just_before},
    view::{Part, View, token},
};
use crate::{
    backend::{Attempt, BackendError, Contention, Ownership},
    clock::Moment,
    terms::Order,
    ttl::Ttl,
};

/// The longest time for which a waiter in the queue is silent.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// How long a waiter keeps its place without a try: some naps. So a waiter that crashed delays the
/// others no longer, whatever its ttl.
const WAITER_SECONDS: i64 = 15;

/// What the session of a lock is shared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The client's other locks of this ttl.
    Client,
    /// Nothing. Another process may take the lock over.
    Nothing,
}

/// One attempt to acquire a lock.
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
        // 1. From here on, the key is deleted when the ttl ends.
        let turn = self.begin_try(&keys, holder, ttl.as_duration(), asked)?;
        let place = keys.place(holder);
        let attempt = Try { etcd: self, keys, place, holder, ttl, seconds, order, sharing, asked };
        // 2. Try.
        let outcome = attempt.run(turn).await;
        // 3. A waiter in the queue, and a lock on a shared session, are remembered. A lock with a session
        // of its own ends with it.
        let is_remembered = match &outcome {
            Ok(Attempt::Granted { .. }) => sharing == Sharing::Client,
            Ok(Attempt::Busy(_)) => order == Order::Fair,
            Err(BackendError::Unavailable(_)) => true,
            Err(_) => false,
        };
        if !is_remembered && self.own.late(&attempt.place).is_empty() {
            self.own.forget(&attempt.place);
        }
        outcome
    }
}

impl Try<'_> {
    async fn run(&self, turn: Option<OwnKey>) -> Result<Attempt, BackendError> {
        // 1. An earlier attempt without an answer may have acquired the lock. Otherwise it must not
        // succeed after this one: another client may release the lock that this one acquires, and knows
        // of no earlier attempts.
        let late = self.etcd.own.late(&self.place);
        if !late.is_empty() {
            let view = self.etcd.view(&self.keys, Part::Owner).await?;
            match view.owner().filter(|owner| owner.key.0 == self.place) {
                Some(owner) => {
                    self.etcd.own.clear_late(&self.place);
                    return self.renew_grant(owner).await.map_err(BackendError::after_a_change);
                }
                None => self.etcd.cut_off(&late).await?,
            }
            self.etcd.own.clear_late(&self.place);
        }
        // 2. Take the lock, if nobody else is in the queue, or it seems to be the own turn.
        let (mut view, joined) = match turn {
            Some(own) => self.take_turn(own).await.map_err(BackendError::after_a_change)?,
            None if self.order == Order::Unordered && self.sharing == Sharing::Client => {
                self.put_first().await?
            }
            None => {
                // A transaction that may put goes to the disk, and this read does not. Nor is a session
                // begun for a lock that is held.
                let view = self.etcd.view(&self.keys, Part::All).await?;
                if view.owner().is_some() { (view, None) } else { self.put_first().await? }
            }
        };
        // 3. In the fair order, queue behind the others, or keep the place there.
        if self.order == Order::Fair {
            match view.position(&self.place) {
                Some(0) => {}
                Some(place) => self.keep_place(&view.queue[place]).await?,
                None => view = self.put_last().await?,
            }
        }
        self.outcome(view, joined).await.map_err(BackendError::after_a_change)
    }

    /// Returns the session for the key of an owner.
    async fn session(&self, since: Moment) -> Result<Joined, BackendError> {
        let seconds = self.seconds..=self.seconds;
        match self.sharing {
            Sharing::Client => self.etcd.join(self.seconds, seconds, self.seconds, since).await,
            Sharing::Nothing => {
                if let Some(session) = self.etcd.own.session(&self.place)
                    && session.serves(self.seconds)
                    && let Some(joined) = self.etcd.keep(&session, since).await?
                {
                    return Ok(joined);
                }
                let joined = self.etcd.begin_session(keys::own_lease(), seconds, self.seconds);
                let joined = joined.await?;
                self.etcd.own.set_session(&self.place, &joined.session);
                Ok(joined)
            }
        }
    }

    /// Returns the session for the key of a waiter. It is short, because only an owner needs the whole
    /// ttl.
    async fn waiting_session(&self, since: Moment) -> Result<Joined, BackendError> {
        let shortest = self.seconds.min(WAITER_SECONDS);
        self.etcd.join(shortest, shortest..=self.seconds, self.seconds, since).await
    }

    /// A lock may join a session without a keep-alive that was kept alive since this moment.
    fn just_before(&self) -> Moment {
        just_before(self.asked, self.ttl.as_duration())
    }

    /// Puts the own key if nobody else is in the queue. The same transaction shows whether it did, and
    /// reads the offset: one that was read earlier may have been raised since, by an owner before this
    /// one. Returns the session if the key was put.
    async fn put_first(&self) -> Result<(View, Option<Joined>), BackendError> {
        loop {
            let joined = self.session(self.just_before()).await?;
            let nobody = Compare::none_exists(self.keys.queue(), self.keys.queue_end());
            match self.put(&joined, vec![nobody], Part::Owner).await? {
                Some((view, has_put)) if view.owner().is_some() => {
                    return Ok((view, has_put.then_some(joined)));
                }
                _ => joined.leave_epoch(),
            }
        }
    }

    /// Puts the own key behind those of the others.
    async fn put_last(&self) -> Result<View, BackendError> {
        loop {
            let joined = self.waiting_session(self.just_before()).await?;
            let absent = Compare::created(self.place.clone(), 0);
            match self.put(&joined, vec![absent], Part::All).await? {
                Some((view, _)) if view.position(&self.place).is_some() => return Ok(view),
                _ => joined.leave_epoch(),
            }
        }
    }

    /// Keeps the session of a waiter's key alive. If that was given up, the key moves.
    async fn keep_place(&self, own: &KeyValue) -> Result<(), BackendError> {
        let joined = self.waiting_session(self.asked).await?;
        if own.lease != joined.session.lease() {
            self.etcd.move_key(&self.keys, own, &joined).await?;
        }
        Ok(())
    }

    /// Moves the own key to the session of an owner's, if it is the oldest. A watch has shown that the
    /// owner's key is gone, but only the transaction decides. If it arrives late, the key was changed or
    /// deleted meanwhile.
    async fn take_turn(&self, own: OwnKey) -> Result<(View, Option<Joined>), BackendError> {
        let joined = self.session(self.just_before()).await?;
        let compare = vec![
            Compare::changed(self.place.clone(), own.changed),
            Compare::none_before(self.keys.queue(), self.keys.queue_end(), own.created),
        ];
        match self.put(&joined, compare, Part::Owner).await? {
            Some((view, has_put)) => Ok((view, has_put.then_some(joined))),
            None => Err(Failure::NoLease.into()),
        }
    }

    /// Puts the own key on a session if the comparisons hold, and reads this part of the lock. Otherwise,
    /// this reads all of it. Returns whether it did; `None` if the session does not exist, such as after
    /// a restore.
    async fn put(
        &self,
        joined: &Joined,
        mut compare: Vec<Compare>,
        part: Part,
    ) -> Result<Option<(View, bool)>, BackendError> {
        let lease = joined.session.lease();
        compare.push(Compare::changed(keys::session_key(lease), joined.epoch));
        let put = Put { key: Text(self.place.clone()), value: Text::default(), lease };
        let failure = View::reads(&self.keys, Part::All).to_vec();
        let reads = View::reads(&self.keys, part);
        let success = [&[Operation::Put(put)], &reads[..]].concat();
        self.etcd.own.sends(&self.place, joined.late());
        let transaction = Txn { compare, success, failure };
        let reply = self.etcd.connection.call::<TxnReply>("kv/txn", &transaction).await;
        if !reply.as_ref().is_err_and(Failure::leaves_it_under_way) {
            self.etcd.own.answered(&self.place);
        }
        match reply {
            Ok(reply) => {
                let has_put = reply.succeeded;
                let view = View::parse(reply).map_err(BackendError::after_a_change)?;
                joined.confirm(view.header, self.etcd)?;
                Ok(Some((view, has_put)))
            }
            Err(Failure::NoLease) => {
                joined.session.give_up();
                Ok(None)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// The oldest key is the owner's. The attempt may have put it on this session.
    async fn outcome(&self, view: View, joined: Option<Joined>) -> Result<Attempt, BackendError> {
        let Some(owner) = view.owner() else {
            return Err(self.etcd.unavailable("the queue is empty after a put"));
        };
        let position = view.position(&self.place);
        match (position, joined) {
            (Some(0), Some(joined)) => self.granted(&view, owner, &joined),
            // It has waited, or an earlier attempt has put the key.
            (Some(0), None) => self.renew_grant(owner).await,
            _ => Ok(Attempt::Busy(Contention {
                remaining: self.etcd.remaining(owner).await?,
                // The oldest key is no waiter's.
                ahead: position.and_then(|older| (older - 1).try_into().ok()),
                nap: position.map(|_| (self.ttl.as_duration() / 3).min(LONGEST_NAP)),
            })),
        }
    }

    /// Sets the full ttl of the own key, which is the oldest.
    async fn renew_grant(&self, owner: &KeyValue) -> Result<Attempt, BackendError> {
        // 1. Keep the session alive, and move the key to it. Only then look whose the lock is.
        let joined = self.session(self.asked).await?;
        let lease = joined.session.lease();
        let view = if owner.lease == lease {
            let view = self.etcd.view(&self.keys, Part::Owner).await?;
            joined.confirm(view.header, self.etcd)?;
            Some(view)
        } else {
            self.etcd.move_key(&self.keys, owner, &joined).await?
        };
        // 2. It may have ended meanwhile.
        if let Some(view) = view
            && let Some(owner) = view.owner_if(&self.place, owner.create_revision)
            && owner.lease == lease
        {
            return self.granted(&view, owner, &joined);
        }
        Err(self.etcd.unavailable("the lock has just expired, or was moved"))
    }

    fn granted(
        &self,
        view: &View,
        owner: &KeyValue,
        joined: &Joined,
    ) -> Result<Attempt, BackendError> {
        self.etcd.own.set_session(&self.place, &joined.session);
        let grant = token(owner.create_revision)?;
        let ownership = Ownership { holder: self.holder.clone(), grant };
        let asked = joined.asked.min(self.asked);
        Ok(Attempt::Granted { token: view.token(owner)?, ownership, asked })
    }
}
