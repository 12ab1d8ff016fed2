//! One attempt to acquire a lock.

use std::time::Duration;

use fence::{Holder, ResourceName};
use tokio::join;

use super::{
    client::Etcd,
    keys::Keys,
    leases::{Alive, whole_seconds},
    messages::{Compare, Operation, Put, Text, Txn},
    view::{Part, View, token},
};
use crate::{
    backend::{Attempt, Backend, BackendError, Contention, Ownership},
    clock::Moment,
    terms::Order,
    ttl::Ttl,
};

/// The longest time for which a waiter in the queue is silent.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// How long a waiter keeps its place without a try: some naps. So a waiter that crashed delays the
/// others no longer, whatever its ttl.
const WAITER_SECONDS: i64 = 15;

/// One attempt to acquire a lock.
struct Try<'a> {
    etcd: &'a Etcd,
    keys: Keys,
    holder: &'a Holder,
    ttl: Ttl,
    seconds: i64,
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
        let attempt = Try { etcd: self, keys, holder, ttl, seconds, asked };
        let (lease, alive) = attempt.open_lease(order).await?;
        let view = attempt.queue(order, lease, alive).await?;
        // From here on, the holder may have a key.
        attempt.outcome(lease, alive, view).await.map_err(BackendError::after_a_change)
    }
}

impl Try<'_> {
    /// 1. Find a spare lease, make one, or set its full time. A waiter in the queue mostly has one
    ///    already. It is short, because only an owner needs the whole ttl.
    async fn open_lease(&self, order: Order) -> Result<(i64, Alive), BackendError> {
        let (connection, own) = (&self.etcd.connection, self.keys.lease(self.holder));
        if order == Order::Unordered {
            if let Some(spare) = self.etcd.spare_lease(self.holder, self.seconds).await? {
                return Ok(spare);
            }
            self.etcd.make_spare_lease(self.seconds);
            return Ok((own, connection.open_lease(own, self.seconds..=self.seconds).await?));
        }
        let alive = match connection.keep_alive(own).await? {
            Some(alive) => alive,
            None => {
                let shortest = self.seconds.min(WAITER_SECONDS);
                connection.open_lease(own, shortest..=self.seconds).await?
            }
        };
        Ok((own, alive))
    }

    fn place(&self) -> String {
        self.keys.place(self.holder)
    }

    /// 2. Queue: in no order only if nobody else is there, in the fair order behind the others. The
    ///    same transaction reads the offset, and shows whether the own key is the oldest. An offset
    ///    that was read earlier may have been raised since by an owner before this one.
    async fn queue(&self, order: Order, lease: i64, alive: Alive) -> Result<View, BackendError> {
        let (keys, place) = (&self.keys, self.place());
        if order == Order::Fair && alive.was_kept() {
            // A waiter is mostly in the queue already. A transaction that may put goes to the disk,
            // and this read does not.
            let view = self.etcd.view(keys, Part::All).await?;
            if view.position(&place).is_some() {
                return Ok(view);
            }
        }
        let absent = match order {
            Order::Fair => Compare::created(place.clone(), 0),
            Order::Unordered => Compare::none_exists(keys.queue(), keys.queue_end()),
        };
        let own = Put { key: Text(place), value: Text::default(), lease };
        let reads = View::reads(keys, Part::All);
        let success = [&[Operation::Put(own)], &reads[..]].concat();
        let transaction = Txn { compare: vec![absent], success, failure: reads.to_vec() };
        View::parse(self.etcd.transact(&transaction).await?).map_err(BackendError::after_a_change)
    }

    /// 3. The oldest key is the owner's.
    async fn outcome(&self, lease: i64, alive: Alive, view: View) -> Result<Attempt, BackendError> {
        let Self { etcd, keys, holder, ttl, seconds, asked } = self;
        let place = self.place();
        etcd.spares.settle(holder);
        match (view.position(&place), view.owner()) {
            (Some(0), Some(owner)) => {
                alive.confirm(view.header, &etcd.address())?;
                let grant = token(owner.create_revision)?;
                let ownership = Ownership { holder: (*holder).clone(), grant };
                let mut token = view.token(owner)?;
                if owner.lease == lease && alive.seconds < *seconds {
                    // It waited until now.
                    let spare = etcd.spare_lease(holder, *seconds).await?;
                    // An earlier attempt for less time may use one.
                    let spare = spare.filter(|(_, spare)| spare.seconds >= *seconds);
                    etcd.make_spare_lease(*seconds);
                    let moved = match spare {
                        Some((longer, alive)) => {
                            etcd.move_to_lease(keys, &ownership, longer, alive).await?
                        }
                        None => etcd.move_to_longer_lease(keys, &ownership, *ttl).await?,
                    };
                    moved.ok_or_else(|| etcd.unavailable("the lock has just expired"))?;
                } else if owner.lease != lease {
                    // An earlier attempt or renewal asked for another ttl.
                    let kept = etcd.renew_ownership(keys, &ownership, *ttl).await?;
                    token = kept.ok_or_else(|| etcd.unavailable("the lock has just expired"))?;
                }
                Ok(Attempt::Granted { token, ownership, asked: *asked })
            }
            (Some(older), Some(owner)) => Ok(Attempt::Busy(Contention {
                remaining: etcd.remaining(owner).await?,
                // The oldest key is no waiter's.
                ahead: (older - 1).try_into().ok(),
                nap: Some((ttl.as_duration() / 3).min(LONGEST_NAP)),
            })),
            (_, Some(owner)) => {
                // The lease has no key. If it is not revoked, it ends by itself.
                let (_, remaining) =
                    join!(etcd.end_unused_lease(holder, lease), etcd.remaining(owner));
                Ok(Attempt::Busy(Contention { remaining: remaining?, ahead: None, nap: None }))
            }
            (_, None) => Err(etcd.unavailable("the queue is empty, although the lock was taken")),
        }
    }
}
