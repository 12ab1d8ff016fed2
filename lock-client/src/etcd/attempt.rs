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
        let alive = attempt.open_lease(order).await?;
        let view = attempt.queue(order, alive).await?;
        // From here on, the holder may have a key.
        attempt.outcome(alive, view).await.map_err(BackendError::after_a_change)
    }
}

impl Try<'_> {
    /// 1. Make the lease, or set its full time. A waiter in the queue mostly has one already. It is
    ///    short, because only an owner needs the whole ttl.
    async fn open_lease(&self, order: Order) -> Result<Alive, BackendError> {
        let (connection, lease) = (&self.etcd.connection, self.lease());
        if order == Order::Unordered {
            return connection.open_lease(lease, self.seconds..=self.seconds).await;
        }
        match connection.keep_alive(lease).await? {
            Some(alive) => Ok(alive),
            None => {
                let shortest = self.seconds.min(WAITER_SECONDS);
                connection.open_lease(lease, shortest..=self.seconds).await
            }
        }
    }

    fn lease(&self) -> i64 {
        self.keys.lease(self.holder)
    }

    fn place(&self) -> String {
        self.keys.place(self.holder)
    }

    /// 2. Queue: in no order only if nobody else is there, in the fair order behind the others. The
    ///    same transaction reads the offset, and shows whether the own key is the oldest. An offset
    ///    that was read earlier may have been raised since by an owner before this one.
    async fn queue(&self, order: Order, alive: Alive) -> Result<View, BackendError> {
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
        let own = Put { key: Text(place), value: Text::default(), lease: self.lease() };
        let reads = View::reads(keys, Part::All);
        let success = [&[Operation::Put(own)], &reads[..]].concat();
        let transaction = Txn { compare: vec![absent], success, failure: reads.to_vec() };
        View::parse(self.etcd.transact(&transaction).await?).map_err(BackendError::after_a_change)
    }

    /// 3. The oldest key is the owner's.
    async fn outcome(&self, alive: Alive, view: View) -> Result<Attempt, BackendError> {
        let Self { etcd, keys, holder, ttl, seconds, asked } = self;
        let (place, lease) = (self.place(), self.lease());
        match (view.position(&place), view.owner()) {
            (Some(0), Some(owner)) => {
                alive.confirm(view.header, &etcd.address())?;
                let grant = token(owner.create_revision)?;
                let ownership = Ownership { holder: (*holder).clone(), grant };
                let mut token = view.token(owner)?;
                if owner.lease == lease && alive.seconds < *seconds {
                    // It waited until now.
                    let moved = etcd.move_to_longer_lease(keys, &ownership, *ttl).await?;
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
                let (_, remaining) = join!(etcd.connection.revoke(lease), etcd.remaining(owner));
                Ok(Attempt::Busy(Contention { remaining: remaining?, ahead: None, nap: None }))
            }
            (_, None) => Err(etcd.unavailable("the queue is empty, although the lock was taken")),
        }
    }
}
