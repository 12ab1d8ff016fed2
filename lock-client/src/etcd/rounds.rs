//! Renewals in rounds: one keep-alive of a session, and few reads, for all locks that are renewed at about
//! one time.

use std::{
    mem,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    client::Etcd,
    keys::Keys,
    messages::{KeyValue, Txn},
    session::{Joined, Session},
    view::{Part, View},
};
use crate::{
    backend::{Backend, BackendError, Ownership},
    clock::Moment,
};
use fence::Token;

/// How many locks one transaction reads. Each takes two reads, and `--max-txn-ops` is 128 by default.
const LOCKS_IN_A_TRANSACTION: usize = 50;
/// The time between the beginnings of two rounds, as a part of the ttl, and at most as a part of the answer
/// time-out. So 10 000 locks with a ttl of 30 seconds take 8 rounds a second.
const PART_OF_THE_TTL: u32 = 60;
const PART_OF_THE_ANSWER_TIMEOUT: u32 = 4;

/// The renewals of a session's locks that wait for the next round.
#[derive(Default)]
pub(super) struct Rounds(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    renewals: Vec<Renewal>,
    /// Whether a task takes them.
    is_running: bool,
}

/// The renewal of one lock.
struct Renewal {
    keys: Keys,
    ownership: Ownership,
    asked: Moment,
    answer: oneshot::Sender<Result<Renewed, BackendError>>,
}

/// What a renewal has shown.
pub(super) enum Renewed {
    /// The lock has its full time.
    Full(Token),
    /// The lock is not this ownership's.
    NotOurs,
    /// The lock lives by another lease.
    Elsewhere(KeyValue),
}

impl Rounds {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("nothing panics while it holds this")
    }

    /// Returns whether a task must be started.
    fn push(&self, renewal: Renewal) -> bool {
        let mut waiting = self.waiting();
        waiting.renewals.push(renewal);
        !mem::replace(&mut waiting.is_running, true)
    }

    /// Takes all renewals for a round. If there are none, the task ends.
    fn take(&self) -> Option<Vec<Renewal>> {
        let mut waiting = self.waiting();
        waiting.is_running = !waiting.renewals.is_empty();
        waiting.is_running.then(|| mem::take(&mut waiting.renewals))
    }
}

/// The task of a session's rounds. If its runtime ends, the renewals that wait fail.
struct Running<'a>(&'a Rounds);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.waiting() = Waiting::default();
    }
}

impl Etcd {
    /// Renews a lock that lives by a session, in its next round.
    pub(super) async fn renew_by(
        &self,
        session: &Session,
        keys: &Keys,
        ownership: &Ownership,
    ) -> Result<Renewed, BackendError> {
        let (answer, answered) = oneshot::channel();
        let (keys, ownership) = (keys.clone(), ownership.clone());
        let renewal = Renewal { keys, ownership, asked: Moment::now(), answer };
        if session.rounds().push(renewal) {
            tokio::spawn(self.clone().run_rounds(session.clone()));
        }
        answered.await.unwrap_or_else(|_| Err(self.unavailable("the runtime has ended")))
    }

    async fn run_rounds(self, session: Session) {
        let rounds = session.rounds();
        let running = Running(rounds);
        let ttl = Duration::from_secs(session.seconds().unsigned_abs());
        let answer_timeout = self.answer_timeout() / PART_OF_THE_ANSWER_TIMEOUT;
        let spacing = (ttl / PART_OF_THE_TTL).min(answer_timeout);
        while let Some(renewals) = rounds.take() {
            let next = Moment::now() + spacing;
            self.round(&session, renewals).await;
            next.passed().await;
        }
        // Another task may have been started since the last look.
        mem::forget(running);
    }

    /// Renews these locks.
    async fn round(&self, session: &Session, mut renewals: Vec<Renewal>) {
        // 1. Keep the session alive, for all of them, after the last of them was asked for.
        let Some(last) = renewals.iter().map(|renewal| renewal.asked).max() else { return };
        let kept = match self.keep(session, last).await {
            Ok(kept) => kept,
            Err(error) => return fail(renewals, &error),
        };
        // 2. Only then check whose each lock is. From here on, the locks may last longer.
        while !renewals.is_empty() {
            let rest = renewals.split_off(renewals.len().min(LOCKS_IN_A_TRANSACTION));
            let these = mem::replace(&mut renewals, rest);
            let reads = these.iter().flat_map(|it| View::reads(&it.keys, Part::Owner));
            let transaction = Txn { success: reads.collect(), ..Txn::default() };
            let reply = match self.transact(&transaction).await {
                Ok(reply) => reply,
                Err(error) => {
                    fail(these, &error.after_a_change());
                    continue;
                }
            };
            for (renewal, view) in these.into_iter().zip(View::parse_all(reply)) {
                let renewed =
                    view.and_then(|view| self.renewed(&renewal, &view, session, kept.as_ref()));
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
        if owner.lease != session.lease() {
            return Ok(Renewed::Elsewhere(owner.clone()));
        }
        // The lock's last moment: its lease has ended, and the key is about to go.
        let kept = kept.ok_or_else(|| self.unavailable("the lease has ended"))?;
        kept.confirm(view.header, self)?;
        view.token(owner).map(Renewed::Full)
    }
}

/// Reports one failure to all.
fn fail(renewals: Vec<Renewal>, error: &BackendError) {
    for renewal in renewals {
        let _ = renewal.answer.send(Err(error.repeated()));
    }
}
