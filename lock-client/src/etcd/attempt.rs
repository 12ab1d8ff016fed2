//! One attempt to acquire a lock.

use std::time::Duration;

use fence::{Holder, ResourceName};

use super::{
    client::Etcd,
    failure::Failure,
    keys::{self, Keys},
    leases::{Alive, whole_seconds},
    messages::{Compare, KeyValue, Operation, Put, Text, Txn, TxnReply},
    view::{Part, View, token},
    waiters::OwnKey,
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
/// The value of a key whose holder may have queued. Then it has a lease of its own.
pub(super) const MAY_HAVE_QUEUED: &str = "fair";

/// One attempt to acquire a lock.
struct Try<'a> {
    etcd: &'a Etcd,
    keys: Keys,
    holder: &'a Holder,
    ttl: Ttl,
    seconds: i64,
    order: Order,
    asked: Moment,
}

impl Etcd {
    pub(super) async fn acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError> {
        let seconds = whole_seconds(ttl)?;
        let (keys, asked) = (Keys::new(name), Moment::now());
        let attempt = Try { etcd: self, keys, holder, ttl, seconds, order, asked };
        // No earlier attempt of the holder may succeed after this one. Another client may release the
        // lock that this one acquires, and knows of no earlier attempts.
        if let Err(error) = self.close_unanswered(&attempt.place()).await {
            return attempt.find_acquired().await?.ok_or(error);
        }
        match order {
            Order::Unordered => attempt.take().await,
            Order::Fair => attempt.take_or_queue().await,
        }
    }
}

impl Try<'_> {
    /// Takes the lock, on a shared lease, if nobody else is in the queue.
    async fn take(&self) -> Result<Attempt, BackendError> {
        let (view, lease) = self.put_first().await?;
        self.outcome(view, Some(lease)).await.map_err(BackendError::after_a_change)
    }

    /// Takes the lock if the queue is empty. Otherwise, queues behind the others, or keeps its place
    /// there.
    async fn take_or_queue(&self) -> Result<Attempt, BackendError> {
        let (mut view, mut joined) = match self.etcd.waiters.remember(&self.place()) {
            Some(own) => self.take_turn(own).await.map_err(BackendError::after_a_change)?,
            // A transaction that may put goes to the disk, and this read does not.
            None => (self.etcd.view(&self.keys, Part::All).await?, None),
        };
        if view.owner().is_none() {
            let (first, lease) = self.put_first().await?;
            (view, joined) = (first, Some(lease));
        }
        match view.position(&self.place()) {
            Some(0) => {}
            Some(_) => self.keep_place().await?,
            None => view = self.put_last().await?,
        }
        self.outcome(view, joined).await.map_err(BackendError::after_a_change)
    }

    /// Finds the lock that an attempt without an answer has acquired. An etcd without space shows it,
    /// though it can't give the lock its full time.
    async fn find_acquired(&self) -> Result<Option<Attempt>, BackendError> {
        let Self { etcd, holder, ttl, asked, .. } = self;
        let view = etcd.view(&self.keys, Part::Owner).await?;
        let place = self.place();
        let Some(owner) = view.owner().filter(|owner| owner.key.0 == place) else {
            return Ok(None);
        };
        if etcd.shared.unanswered(&place) != [owner.lease] {
            return Ok(None);
        }
        let looked = Moment::now();
        let left = Duration::from_secs(etcd.connection.seconds_left(owner.lease).await?);
        let grant = token(owner.create_revision)?;
        let ownership = Ownership { holder: (*holder).clone(), grant };
        // As if asked so early that the ttl ends with the lease. If that is before the start of the
        // machine, a later moment would extend the lease.
        let Some(asked_for_lease) = (looked + left).checked_sub(ttl.as_duration()) else {
            return Ok(None);
        };
        let asked = (*asked).min(asked_for_lease);
        Ok(Some(Attempt::Granted { token: view.token(owner)?, ownership, asked }))
    }

    /// Puts the own key on a shared lease, if nobody else is in the queue. The same transaction shows
    /// whether it did, and reads the offset: one that was read earlier may have been raised since, by
    /// an owner before this one.
    ///
    /// The shared lease may be closed by another attempt, which had no answer. Then this joins a new
    /// one.
    async fn put_first(&self) -> Result<(View, Alive), BackendError> {
        loop {
            let lease = self.etcd.shared_lease(self.seconds, self.asked).await?;
            let nobody = Compare::none_exists(self.keys.queue(), self.keys.queue_end());
            let open = Compare::created(keys::closing_key(lease.id), 0);
            let transaction = self.put_oldest(vec![nobody, open], lease);
            let reply = self.etcd.attempt_on(lease, &self.place(), &transaction).await?;
            let Some(reply) = reply else { continue };
            let created = reply.header.revision;
            let view = self.view_behind(reply, created, lease);
            let view = view.map_err(BackendError::after_a_change)?;
            if view.owner().is_some() {
                return Ok((view, lease));
            }
            self.etcd.shared.forget(lease.id);
        }
    }

    /// Moves the own key to a shared lease, if it is the oldest. The same transaction shows whether it
    /// did, and reads the offset. A watch has shown that the owner's key is gone, but only the
    /// transaction decides. If it arrives late, the key was changed or deleted meanwhile.
    async fn take_turn(&self, own: OwnKey) -> Result<(View, Option<Alive>), BackendError> {
        let lease = self.etcd.shared_lease(self.seconds, self.asked).await?;
        let compare = vec![
            Compare::changed(self.place(), own.changed),
            Compare::none_before(self.keys.queue(), self.keys.queue_end(), own.created),
        ];
        let reply = self.etcd.transact(&self.put_oldest(compare, lease)).await;
        // The lease may not exist, such as after a restore.
        let reply = reply.inspect_err(|_| self.etcd.shared.forget(lease.id))?;
        let joined = reply.succeeded.then_some(lease);
        Ok((self.view_behind(reply, own.created, lease)?, joined))
    }

    /// Puts the own key behind those of the others. It is on a short lease of its own, because only an
    /// owner needs the whole ttl.
    async fn put_last(&self) -> Result<View, BackendError> {
        let (id, shortest) = (self.keys.lease(self.holder), self.seconds.min(WAITER_SECONDS));
        let lease =
            self.etcd.connection.open_lease(id, shortest..=self.seconds, self.seconds).await?;
        let place = self.place();
        let absent = Compare::created(place.clone(), 0);
        let reads = View::reads(&self.keys, Part::All).to_vec();
        let success = [&[Operation::Put(self.own_key(lease))], &reads[..]].concat();
        let transaction = Txn { compare: vec![absent], success, failure: reads };
        let mut queueing = self.etcd.waiters.queueing(&place);
        let reply = self.etcd.connection.call("kv/txn", &transaction).await;
        queueing.is_answered = !reply.as_ref().is_err_and(Failure::leaves_it_under_way);
        View::parse(reply.map_err(BackendError::from)?).map_err(BackendError::after_a_change)
    }

    /// Sets the full time of the lease of a waiter.
    async fn keep_place(&self) -> Result<(), BackendError> {
        let kept = self.etcd.connection.keep_alive(self.keys.lease(self.holder)).await?;
        kept.map(drop).ok_or_else(|| Failure::NoLease.into())
    }

    /// Makes the transaction that puts the own key if it is the oldest, and then reads the offset.
    /// Otherwise, it reads the queue, too.
    fn put_oldest(&self, compare: Vec<Compare>, lease: Alive) -> Txn {
        let own = Operation::Put(self.own_key(lease));
        let success = vec![own, View::read_of_offset(&self.keys)];
        Txn { compare, success, failure: View::reads(&self.keys, Part::All).to_vec() }
    }

    /// Returns what a transaction of [`put_oldest`](Self::put_oldest) shows. If it put the own key, that
    /// is the owner's, and was created at this revision.
    fn view_behind(
        &self,
        reply: TxnReply,
        created: i64,
        lease: Alive,
    ) -> Result<View, BackendError> {
        if !reply.succeeded {
            return View::parse(reply);
        }
        let Put { key, value, lease } = self.own_key(lease);
        let (create_revision, mod_revision) = (created, reply.header.revision);
        let owner = KeyValue { key, value, create_revision, mod_revision, lease };
        View::parse_behind(owner, reply)
    }

    fn own_key(&self, lease: Alive) -> Put {
        let value = match self.order {
            Order::Unordered => "",
            Order::Fair => MAY_HAVE_QUEUED,
        };
        Put { key: Text(self.place()), value: Text(value.to_owned()), lease: lease.id }
    }

    fn place(&self) -> String {
        self.keys.place(self.holder)
    }

    /// The oldest key is the owner's. The attempt may have joined this shared lease.
    async fn outcome(&self, view: View, joined: Option<Alive>) -> Result<Attempt, BackendError> {
        let Self { etcd, holder, ttl, seconds, asked, .. } = self;
        match (view.position(&self.place()), view.owner()) {
            (Some(0), Some(owner)) => {
                let ownership =
                    Ownership { holder: (*holder).clone(), grant: token(owner.create_revision)? };
                let lease = match joined {
                    Some(lease) => lease,
                    None => etcd.shared_lease(*seconds, *asked).await?,
                };
                // It has waited, or an earlier attempt has put the key.
                if owner.lease != lease.id {
                    let moved = etcd.move_key(owner, lease).await;
                    // The lease may not exist, such as after a restore.
                    if !moved.inspect_err(|_| etcd.shared.forget(lease.id))? {
                        return Err(etcd.unavailable("the lock has just expired, or was moved"));
                    }
                }
                Ok(Attempt::Granted { token: view.token(owner)?, ownership, asked: *asked })
            }
            (Some(older), Some(owner)) => Ok(Attempt::Busy(Contention {
                remaining: etcd.remaining(owner).await?,
                // The oldest key is no waiter's.
                ahead: (older - 1).try_into().ok(),
                nap: Some((ttl.as_duration() / 3).min(LONGEST_NAP)),
            })),
            (None, Some(owner)) => {
                let remaining = etcd.remaining(owner).await?;
                Ok(Attempt::Busy(Contention { remaining, ahead: None, nap: None }))
            }
            (_, None) => Err(etcd.unavailable("the queue is empty after a put")),
        }
    }
}
