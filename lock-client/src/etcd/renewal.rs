//! What an owner does while it holds a lock: it renews, and reissues.
//!
//! Renewals come in rounds: one keep-alive of a session, and few reads, for all locks that are
//! renewed at about one time. The first caller of a round carries it out for the others.

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use fence::Token;
use tokio::sync::oneshot;

use super::{
    client::Etcd,
    connection::Connection,
    failure::Failure,
    keys::{self, Keys},
    messages::{KeyValue, Txn, is_changed, is_created, put},
    session::{Joined, Session, begin_session},
    view::{Part, View},
};
use crate::{
    backend::{Backend, BackendError, Ownership, token},
    clock::Moment,
    mutex::Locked,
    ttl::Ttl,
};

/// How many locks one transaction reads. Each takes two reads, and `--max-txn-ops` is 128 by
/// default.
const LOCKS_IN_A_TRANSACTION: usize = 50;
/// The time between the beginnings of two rounds, as a part of the ttl, and at most as a part of
/// the answer time-out. So 10 000 locks with a ttl of 30 seconds take 8 rounds a second.
const PART_OF_THE_TTL: u32 = 60;
const PART_OF_THE_ANSWER_TIMEOUT: u32 = 4;

#[derive(Default)]
pub(super) struct Rounds {
    waiting: Mutex<Vec<Renewal>>,
    /// One caller at a time carries out a round: when the next one may begin.
    next: tokio::sync::Mutex<Option<Moment>>,
}

struct Renewal {
    keys: Keys,
    ownership: Ownership,
    asked: Moment,
    answer: oneshot::Sender<Result<Renewed, BackendError>>,
}

pub(super) enum Renewed {
    /// The lock has its full time.
    Full(Token),
    /// The lock is not this ownership's.
    NotOurs,
    /// The lock lives by another lease.
    Elsewhere(KeyValue),
}

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
        // A lock that is detached while it is adopted is not remembered again.
        let adoption = self.begin_adoption(&place, ttl.as_duration(), asked)?;
        let known = self.own.get(&place).and_then(|own| own.session);
        let Some(mut session) = (match known {
            Some(session) => Some(session),
            None => self.adopt_session(keys, ownership, seconds).await?,
        }) else {
            return Ok(None);
        };
        loop {
            if !session.serves(seconds) {
                let seconds = seconds.max(session.seconds);
                let joined = match session.is_shared() {
                    true => self.join(&self.renewals, seconds..=seconds, asked).await?,
                    false => self.begin_own_session(seconds).await?,
                };
                session = joined.session;
            }
            match self.renew_by(&session, keys, ownership).await? {
                Renewed::Full(token) => {
                    self.remember_lock(&place, &session, ttl.as_duration(), asked)?;
                    adoption.succeed();
                    return Ok(Some(token));
                }
                Renewed::NotOurs => return Ok(None),
                // Its session was given up, or is shorter than this ttl.
                Renewed::Elsewhere(owner) => {
                    let joined = self.keep_alive(&self.renewals, &session, asked).await?;
                    if let Some(joined) = joined {
                        let moved = self.move_key(&self.renewals, keys, &owner, &joined).await;
                        moved.map_err(BackendError::after_a_change)?;
                    }
                }
            }
        }
    }

    /// Returns the session of a lock that another process has acquired. If that process's other
    /// locks share its session, the lock gets one of its own. Returns `None` if the lock is not
    /// this ownership's.
    async fn adopt_session(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        seconds: i64,
    ) -> Result<Option<Arc<Session>>, BackendError> {
        let view = self.renewals.view(keys, Part::Owner).await?;
        let place = keys.place(&ownership.holder);
        let Some(owner) = view.owner_if(&place, ownership.grant.as_i64()) else { return Ok(None) };
        let alive = match keys::is_shared(owner.lease) {
            false => self.renewals.keep_alive(owner.lease).await?,
            true => None,
        };
        Ok(Some(match alive {
            Some(alive) => Session::new(owner.lease, alive),
            None => self.begin_own_session(seconds).await?.session,
        }))
    }

    /// Begins a session of one lock, for these seconds or longer.
    async fn begin_own_session(&self, seconds: i64) -> Result<Joined, BackendError> {
        begin_session(&self.renewals, keys::own_lease(), seconds..=i64::MAX).await
    }

    /// Moves a key to another session, and reads the lock. Returns `None` if the key was changed or
    /// deleted meanwhile.
    pub(super) async fn move_key(
        &self,
        connection: &Connection,
        keys: &Keys,
        own: &KeyValue,
        joined: &Joined,
    ) -> Result<Option<View>, BackendError> {
        let (place, lease) = (&own.key.0, joined.session.lease);
        let success = [&[put(place, "", lease)], &View::reads(keys, Part::Owner)[..]].concat();
        // A move that arrives late fails. Otherwise the key might get a lease that ends sooner.
        let compare = vec![is_changed(place, own.mod_revision)];
        let reply = connection.transact(&Txn { compare, success, failure: Vec::new() }).await;
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

    pub(super) async fn reissue_token(
        &self,
        keys: &Keys,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError> {
        let created = ownership.grant.as_i64();
        let place = keys.place(&ownership.holder);
        loop {
            let view = self.renewals.view(keys, Part::Owner).await?;
            let Some(owner) = view.owner_if(&place, created) else { return Ok(None) };
            let raised = token(view.token(owner)?.max(above).as_i64() + 1)?;
            // The key that is the oldest stays the oldest as long as it exists.
            let compare =
                vec![is_created(&place, created), is_changed(&keys.offset(), view.offset_revision)];
            let offset = (raised.as_i64() - created).to_string();
            let success = vec![put(&keys.offset(), &offset, 0)];
            let raises = Txn { compare, success, failure: Vec::new() };
            if self.renewals.transact(&raises).await?.succeeded {
                return Ok(Some(raised));
            }
        }
    }

    /// Renews a lock that lives by a session, in its next round.
    async fn renew_by(
        &self,
        session: &Arc<Session>,
        keys: &Keys,
        ownership: &Ownership,
    ) -> Result<Renewed, BackendError> {
        let rounds = &session.rounds;
        let (answer, mut answered) = oneshot::channel();
        let (keys, ownership) = (keys.clone(), ownership.clone());
        rounds.waiting.locked().push(Renewal { keys, ownership, asked: Moment::now(), answer });
        // 1. Wait until another caller has renewed this lock, or it is the own turn.
        tokio::select! {
            biased;
            renewed = &mut answered => return renewed.unwrap_or_else(|_| self.cut_off()),
            mut next = rounds.next.lock() => {
                // 2. Wait for more renewals, if the last round was just now.
                if let Some(next) = *next {
                    next.passed().await;
                }
                let ttl = Duration::from_secs(session.seconds.unsigned_abs());
                let answer_timeout = self.answer_timeout() / PART_OF_THE_ANSWER_TIMEOUT;
                *next = Some(Moment::now() + (ttl / PART_OF_THE_TTL).min(answer_timeout));
                // 3. Renew all of them, also if this caller gives up. The last one may have taken
                // it along.
                let renewals = mem::take(&mut *rounds.waiting.locked());
                let round = self.clone().round(session.clone(), renewals);
                let _ended = tokio::spawn(round).await;
            }
        }
        answered.await.unwrap_or_else(|_| self.cut_off())
    }

    fn cut_off(&self) -> Result<Renewed, BackendError> {
        Err(self.unavailable("the runtime has ended"))
    }

    async fn round(self, session: Arc<Session>, mut renewals: Vec<Renewal>) {
        // 1. Keep the session alive, for all of them, after the last of them was asked for.
        let Some(last) = renewals.iter().map(|renewal| renewal.asked).max() else { return };
        let kept = match self.keep_alive(&self.renewals, &session, last).await {
            Ok(kept) => kept,
            Err(error) => return fail(renewals, &error),
        };
        // 2. Only then check whose each lock is. From here on, the locks may last longer.
        while !renewals.is_empty() {
            let number = renewals.len().min(LOCKS_IN_A_TRANSACTION);
            let these: Vec<_> = renewals.drain(..number).collect();
            let reads = these.iter().flat_map(|it| View::reads(&it.keys, Part::Owner));
            let transaction = Txn { success: reads.collect(), ..Txn::default() };
            let reply = match self.renewals.transact(&transaction).await {
                Ok(reply) => reply,
                Err(failure) => {
                    fail(these, &BackendError::from(failure).after_a_change());
                    continue;
                }
            };
            for (renewal, view) in these.into_iter().zip(View::parse_all(reply)) {
                let renewed =
                    view.and_then(|view| self.renewed(&renewal, &view, &session, kept.as_ref()));
                let renewed = renewed.map_err(BackendError::after_a_change);
                // The renewal may have been dropped.
                let _ = renewal.answer.send(renewed);
            }
        }
    }

    fn renewed(
        &self,
        renewal: &Renewal,
        view: &View,
        session: &Session,
        kept: Option<&Joined>,
    ) -> Result<Renewed, BackendError> {
        let Ownership { holder, grant } = &renewal.ownership;
        let place = renewal.keys.place(holder);
        let Some(owner) = view.owner_if(&place, grant.as_i64()) else {
            return Ok(Renewed::NotOurs);
        };
        if owner.lease != session.lease {
            return Ok(Renewed::Elsewhere(owner.clone()));
        }
        // The lock's last moment: its lease has ended, and the key is about to go.
        let kept = kept.ok_or_else(|| self.unavailable("the lease has ended"))?;
        kept.confirm(view.header, self)?;
        view.token(owner).map(Renewed::Full)
    }
}

fn fail(renewals: Vec<Renewal>, error: &BackendError) {
    for renewal in renewals {
        let _ = renewal.answer.send(Err(error.repeated()));
    }
}
