//! One attempt to acquire a lock.

use std::time::Duration;

use fence::{Holder, ResourceName};

use super::{
    client::Etcd,
    failure::Failure,
    keys::{self, Keys},
    leases::{Alive, whole_seconds},
    messages::{Compare, KeyValue, Operation, Put, Text, Txn, TxnReply},
    own::{Late, OwnKey},
    session::Session,
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

/// What the lease of a lock is shared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The client's other locks of this ttl.
    Session,
    /// Nothing. Another process may take the lock over.
    Nothing,
}

/// One attempt to acquire a lock.
struct Try<'a> {
    etcd: &'a Etcd,
    keys: Keys,
    holder: &'a Holder,
    ttl: Ttl,
    seconds: i64,
    order: Order,
    sharing: Sharing,
    asked: Moment,
}

/// The lease by which an owner's key lives.
struct Target {
    alive: Alive,
    /// A moment before the lease got its full time.
    asked: Moment,
    /// The session of the lease, and its epoch; `None` if the lease is the lock's own.
    session: Option<(Session, i64)>,
}

impl Target {
    /// Lets no more locks join the session. It may not exist, such as after a restore.
    fn give_up(&self) {
        if let Some((session, _)) = &self.session {
            session.give_up();
        }
    }

    fn late(&self) -> Late {
        match &self.session {
            Some((session, epoch)) => Late::Session(session.clone(), *epoch),
            None => Late::Lease(self.alive.id),
        }
    }
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
        let attempt = Try { etcd: self, keys, holder, ttl, seconds, order, sharing, asked };
        let place = attempt.place();
        // 1. From here on, the key is deleted when the ttl ends.
        let Ok(turn) = self.own.begin_try(&place, ttl.as_duration(), asked + ttl.as_duration())
        else {
            return Err(self.unavailable("the lease has ended, and its lock is being deleted"));
        };
        self.delete_ended();
        // 2. Try.
        let outcome = attempt.run(turn).await;
        // 3. A waiter in the queue, and a lock on a session, are remembered. A lock with a lease of its
        // own ends with it.
        let is_remembered = match &outcome {
            Ok(Attempt::Granted { .. }) => sharing == Sharing::Session,
            Ok(Attempt::Busy(_)) => order == Order::Fair,
            Err(BackendError::Unavailable(_)) => true,
            Err(_) => false,
        };
        if !is_remembered && self.own.late(&place).is_empty() {
            self.own.forget(&place);
        }
        outcome
    }
}

impl Try<'_> {
    async fn run(&self, turn: Option<OwnKey>) -> Result<Attempt, BackendError> {
        // A waiter's request to queue puts the key that the holder has, or none.
        let mut late = self.etcd.own.late(&self.place());
        late.retain(|late| late.lease() != self.keys.lease(self.holder));
        if !late.is_empty() {
            // 1. An earlier attempt had no answer. It may have acquired the lock.
            let view = self.etcd.view(&self.keys, Part::Owner).await?;
            if view.position(&self.place()) == Some(0) {
                self.forget_late(&late);
                return self.outcome(view, None).await.map_err(BackendError::after_a_change);
            }
            // 2. Otherwise it must not succeed after this one. Another client may release the lock that
            // this one acquires, and knows of no earlier attempts.
            self.etcd.cut_off(&late).await?;
            self.forget_late(&late);
        }
        match self.order {
            Order::Unordered => self.take().await,
            Order::Fair => self.take_or_queue(turn).await,
        }
    }

    /// Forgets requests that arrive no more.
    fn forget_late(&self, late: &[Late]) {
        late.iter().for_each(|late| self.etcd.own.answered(&self.place(), late.lease()));
    }

    /// Takes the lock, if nobody else is in the queue.
    async fn take(&self) -> Result<Attempt, BackendError> {
        if self.sharing == Sharing::Nothing {
            // A lease is made only if the lock seems to be free.
            let view = self.etcd.view(&self.keys, Part::All).await?;
            if view.owner().is_some() {
                return self.outcome(view, None).await.map_err(BackendError::after_a_change);
            }
        }
        let (view, target) = self.put_first().await?;
        self.outcome(view, target).await.map_err(BackendError::after_a_change)
    }

    /// Takes the lock if the queue is empty. Otherwise, queues behind the others, or keeps its place
    /// there.
    async fn take_or_queue(&self, turn: Option<OwnKey>) -> Result<Attempt, BackendError> {
        let (mut view, mut joined) = match turn {
            Some(own) => self.take_turn(own).await.map_err(BackendError::after_a_change)?,
            // A transaction that may put goes to the disk, and this read does not.
            None => (self.etcd.view(&self.keys, Part::All).await?, None),
        };
        if view.owner().is_none() {
            let (first, target) = self.put_first().await?;
            (view, joined) = (first, target);
        }
        match view.position(&self.place()) {
            Some(0) => {}
            Some(_) => self.keep_place().await?,
            None => view = self.put_last().await?,
        }
        self.outcome(view, joined).await.map_err(BackendError::after_a_change)
    }

    /// Returns the lease for the key of an owner.
    async fn target(&self) -> Result<Target, BackendError> {
        match self.sharing {
            Sharing::Session => {
                let (session, kept) = self.etcd.joinable_session(self.seconds, self.asked).await?;
                let epoch = session.epoch();
                let asked = kept.asked.min(self.asked);
                Ok(Target { alive: kept.alive, asked, session: Some((session, epoch)) })
            }
            Sharing::Nothing => {
                let (id, seconds) = (keys::own_lease(), self.seconds);
                let granted = self.etcd.connection.grant(id, seconds..=seconds, seconds).await?;
                let alive = granted.ok_or(Failure::LeaseExists)?;
                Ok(Target { alive, asked: self.asked, session: None })
            }
        }
    }

    /// Puts the own key if nobody else is in the queue. The same transaction shows whether it did, and
    /// reads the offset: one that was read earlier may have been raised since, by an owner before this
    /// one. Returns the lease if the key was put.
    async fn put_first(&self) -> Result<(View, Option<Target>), BackendError> {
        loop {
            let target = self.target().await?;
            let mut compare = vec![Compare::none_exists(self.keys.queue(), self.keys.queue_end())];
            if let Some((session, epoch)) = &target.session {
                compare.push(Compare::changed(keys::session_key(session.lease()), *epoch));
            }
            let transaction = self.put_oldest(compare, target.alive);
            let Some(reply) = self.send(&transaction, target.late()).await? else {
                target.give_up();
                continue;
            };
            self.confirm(&target, &reply)?;
            let (created, has_joined) = (reply.header.revision, reply.succeeded);
            let view = self.view_behind(reply, created, target.alive);
            let view = view.map_err(BackendError::after_a_change)?;
            if view.owner().is_some() {
                return Ok((view, has_joined.then_some(target)));
            }
            match &target.session {
                // Another attempt had no answer, so a new epoch has begun.
                Some((session, epoch)) if session.epoch() == *epoch => session.give_up(),
                _ => {}
            }
        }
    }

    /// Sends a transaction that puts the own key, and remembers it until it is answered. Returns `None`
    /// if the lease does not exist.
    async fn send(&self, transaction: &Txn, late: Late) -> Result<Option<TxnReply>, BackendError> {
        let lease = late.lease();
        self.etcd.own.sends(&self.place(), late);
        let reply = self.etcd.connection.call("kv/txn", transaction).await;
        if !reply.as_ref().is_err_and(Failure::leaves_it_under_way) {
            self.etcd.own.answered(&self.place(), lease);
        }
        match reply {
            Ok(reply) => Ok(Some(reply)),
            Err(Failure::NoLease) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Checks that the last keep-alive of the lease counts.
    fn confirm(&self, target: &Target, reply: &TxnReply) -> Result<(), BackendError> {
        let confirmed =
            target.alive.confirm(reply.header, &self.etcd.connection.server().to_string());
        confirmed.inspect_err(|_| {
            if let Some((session, _)) = &target.session {
                session.doubt();
            }
        })
    }

    /// Moves the own key to its lease as an owner's, if it is the oldest. The same transaction shows
    /// whether it did, and reads the offset. A watch has shown that the owner's key is gone, but only the
    /// transaction decides. If it arrives late, the key was changed or deleted meanwhile.
    async fn take_turn(&self, own: OwnKey) -> Result<(View, Option<Target>), BackendError> {
        let target = self.target().await?;
        let compare = vec![
            Compare::changed(self.place(), own.changed),
            Compare::none_before(self.keys.queue(), self.keys.queue_end(), own.created),
        ];
        let reply = self.etcd.transact(&self.put_oldest(compare, target.alive)).await;
        let reply = reply.inspect_err(|_| target.give_up())?;
        self.confirm(&target, &reply)?;
        let has_joined = reply.succeeded;
        let view = self.view_behind(reply, own.created, target.alive)?;
        Ok((view, has_joined.then_some(target)))
    }

    /// Puts the own key behind those of the others. It is on a short lease of its own, because only an
    /// owner needs the whole ttl.
    async fn put_last(&self) -> Result<View, BackendError> {
        let (id, shortest) = (self.keys.lease(self.holder), self.seconds.min(WAITER_SECONDS));
        let lease =
            self.etcd.connection.open_lease(id, shortest..=self.seconds, self.seconds).await?;
        let absent = Compare::created(self.place(), 0);
        let reads = View::reads(&self.keys, Part::All).to_vec();
        let success = [&[Operation::Put(self.own_key(lease))], &reads[..]].concat();
        let transaction = Txn { compare: vec![absent], success, failure: reads };
        let reply = self.send(&transaction, Late::Lease(id)).await?.ok_or(Failure::NoLease)?;
        View::parse(reply).map_err(BackendError::after_a_change)
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
        Put { key: Text(self.place()), value: Text::default(), lease: lease.id }
    }

    fn place(&self) -> String {
        self.keys.place(self.holder)
    }

    /// The oldest key is the owner's. The attempt may have put it on this lease.
    async fn outcome(&self, view: View, joined: Option<Target>) -> Result<Attempt, BackendError> {
        let Self { etcd, ttl, .. } = self;
        match (view.position(&self.place()), view.owner()) {
            (Some(0), Some(owner)) => match joined {
                Some(target) if target.alive.id == owner.lease => {
                    self.granted(&view, owner, &target)
                }
                // It has waited, or an earlier attempt has put the key.
                _ => self.renew_grant(owner).await,
            },
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

    /// Sets the full ttl of the own key, which is the oldest.
    async fn renew_grant(&self, owner: &KeyValue) -> Result<Attempt, BackendError> {
        let etcd = self.etcd;
        // 1. The lease that the key has may do, with its full time.
        let target = match self.own_target(owner).await? {
            Some(target) => target,
            None => {
                let target = self.target().await?;
                let moved = etcd.move_key(owner, target.alive).await;
                if !moved.inspect_err(|_| target.give_up())? {
                    return Err(etcd.unavailable("the lock has just expired, or was moved"));
                }
                target
            }
        };
        // 2. Only then look whose the lock is.
        let view = etcd.view(&self.keys, Part::Owner).await?;
        target.alive.confirm(view.header, &etcd.connection.server().to_string())?;
        match view.owner_if(&self.place(), owner.create_revision) {
            Some(owner) if owner.lease == target.alive.id => self.granted(&view, owner, &target),
            _ => Err(etcd.unavailable("the lock has just expired, or was moved")),
        }
    }

    /// Keeps the key's own lease or session alive, if it lasts for the ttl.
    async fn own_target(&self, owner: &KeyValue) -> Result<Option<Target>, BackendError> {
        let (etcd, asked) = (self.etcd, self.asked);
        if self.sharing == Sharing::Nothing {
            if keys::is_shared(owner.lease) {
                return Ok(None);
            }
            let alive = etcd.connection.keep_alive(owner.lease).await?;
            let alive = alive.filter(|alive| alive.seconds >= self.seconds);
            return Ok(alive.map(|alive| Target { alive, asked, session: None }));
        }
        let Some(session) = etcd.sessions.find(self.seconds) else { return Ok(None) };
        if session.lease() != owner.lease {
            return Ok(None);
        }
        let kept = etcd.keep(&session, asked).await?;
        let epoch = session.epoch();
        Ok(kept.map(|kept| Target { alive: kept.alive, asked, session: Some((session, epoch)) }))
    }

    fn granted(
        &self,
        view: &View,
        owner: &KeyValue,
        target: &Target,
    ) -> Result<Attempt, BackendError> {
        if let Some((session, _)) = &target.session {
            self.etcd.own.set_session(&self.place(), session);
        }
        let grant = token(owner.create_revision)?;
        let ownership = Ownership { holder: self.holder.clone(), grant };
        Ok(Attempt::Granted { token: view.token(owner)?, ownership, asked: target.asked })
    }
}
