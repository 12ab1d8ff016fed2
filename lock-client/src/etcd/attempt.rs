//! One attempt to acquire a lock.

use std::time::Duration;

use fence::{Holder, ResourceName};
use tokio::join;

use super::{
    client::Etcd,
    keys::Keys,
    leases::{Alive, whole_seconds},
    messages::{Compare, Operation, Put, Text, Txn, TxnReply},
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
        let reply = attempt.queue(order).await?;
        // From here on, the holder may have a key.
        attempt.outcome(alive, reply).await.map_err(BackendError::after_a_change)
    }
}

impl Try<'_> {
    /// 1. Make the lease, or set its full time. A waiter in the queue mostly has one already. It is
    ///    short, because only an owner needs the whole ttl.
    async fn open_lease(&self, order: Order) -> Result<Alive, BackendError> {
        let (connection, lease) = (&self.etcd.connection, self.keys.lease(self.holder));
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

    /// 2. Queue: in no order only if nobody else is there, in the fair order behind the others. The
    ///    same transaction reads the offset, and shows whether the own key is the oldest. An offset
    ///    that was read earlier may have been raised since by an owner before this one.
    async fn queue(&self, order: Order) -> Result<TxnReply, BackendError> {
        let keys = &self.keys;
        let (place, lease) = (keys.place(self.holder), keys.lease(self.holder));
        let absent = match order {
            Order::Fair => Compare::created(place.clone(), 0),
            Order::Unordered => Compare::none_exists(keys.queue(), keys.queue_end()),
        };
        let own = Put { key: Text(place), value: Text::default(), lease };
        let reads = View::reads(keys, Part::All);
        let success = [&[Operation::Put(own)], &reads[..]].concat();
        let transaction = Txn { compare: vec![absent], success, failure: reads.to_vec() };
        self.etcd.transact(&transaction).await
    }

    /// 3. The oldest key is the owner's.
    async fn outcome(&self, alive: Alive, reply: TxnReply) -> Result<Attempt, BackendError> {
        let Self { etcd, keys, holder, ttl, seconds, asked } = self;
        let (place, lease) = (keys.place(holder), keys.lease(holder));
        let view = View::parse(reply)?;
        match (view.position(&place), view.owner()) {
            (Some(0), Some(owner)) => {
                alive.confirm(view.header, &etcd.address())?;
                let grant = token(owner.create_revision)?;
                let ownership = Ownership { holder: (*holder).clone(), grant };
                let mut token = view.token(owner)?;
                // It waited until now, or an earlier attempt or renewal asked for another ttl.
                if owner.lease != lease || alive.seconds < *seconds {
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
