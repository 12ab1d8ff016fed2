//! The connections of a client: at most three, and one as long as it only waits.
//!
//! While a lock is held, the first connection is kept for it: tries use the others. It exists before the
//! grant is reported, because it is the one over which the grant came, unless another is kept already.
//! So other clients can't use up what a renewal needs. If it is lost, it is made again at once.

use std::{
    collections::HashSet,
    io, mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fence::Holder;
use futures_util::future::select_all;
use sqlx::{Connection, Database, Encode, Executor, Type};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    answer::Columns,
    keeper,
    slot::{Answer, Slot, Turn, exchange, is_lost, not_connected, silence},
    statements::Statements,
};
use crate::{clock::Moment, retry::pauses};

/// The number of connections. The last ones are made only while the others are busy.
const SLOTS: usize = 3;
/// The number of connections for tries.
const SLOTS_FOR_TRIES: usize = 2;
/// A request waits for a connection that is busy for this part of an answer time-out, before it uses the
/// next one, which may have to be made.
const QUEUEING: u32 = 8;
/// After this time, a connection is checked before it is used.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// How long connecting may take, in answer time-outs.
const CONNECTING: u32 = 10;
/// How long an answer may take until another connection is used instead, in answer time-outs. It is
/// shorter than the patience of a single try.
const SILENCE: u32 = 2;
/// How many connections without an answer are kept. A server whose commits are stuck keeps the session of
/// a closed connection: it would run out of sessions.
const MOST_SILENT: usize = 3;
/// How long they are kept.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// How often a release is repeated that must follow a try. The pauses add up to some 20 seconds.
const RELEASES: usize = 25;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Connecting<D> =
    Pin<Box<dyn Future<Output = Result<<D as Database>::Connection, sqlx::Error>> + Send>>;

/// Makes a connection.
pub(crate) type Connect<D> = Arc<dyn Fn() -> Connecting<D> + Send + Sync>;

/// The connections of a client. Clones share them.
pub(crate) struct Pool<D: Database> {
    pub(super) shared: Arc<Shared<D>>,
}

pub(super) struct Shared<D: Database> {
    connect: Connect<D>,
    answer_timeout: Duration,
    slots: Mutex<Slots<D>>,
    /// Notified when a connection is lost.
    lost: Arc<Notify>,
}

pub(super) struct Slots<D: Database> {
    /// The first one is kept for held locks, while there are any.
    pub(super) all: [Arc<Slot<D>>; SLOTS],
    /// Those whose request is not answered. Others have replaced them.
    silent: Vec<Arc<Slot<D>>>,
    /// The holders of the locks that this client holds.
    pub(super) held: HashSet<Holder>,
    /// The task that makes the kept connection again, and closes idle ones.
    pub(super) keeper: Option<JoinHandle<()>>,
}

/// What a connection is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A try may wait for a row for long.
    Try,
    /// A request of a held lock, or one that only reads.
    Held,
}

impl<D: Database> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<D: Database> Pool<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
    D::Row: Columns,
{
    pub(crate) fn new(connect: Connect<D>, answer_timeout: Duration) -> Self {
        let slots = Mutex::new(Slots {
            all: std::array::from_fn(|_| Arc::default()),
            silent: Vec::new(),
            held: HashSet::new(),
            keeper: None,
        });
        let lost = Arc::new(Notify::new());
        Self { shared: Arc::new(Shared { connect, answer_timeout, slots, lost }) }
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.shared.answer_timeout
    }

    /// Sends statements as one message, and returns the only row of the answer.
    pub(crate) async fn fetch(&self, statements: impl Into<Statements>) -> Answer<D> {
        self.send(Purpose::Held, None, statements.into()).await
    }

    /// Does the same, but never over the kept connection.
    pub(crate) async fn fetch_aside(&self, statements: impl Into<Statements>) -> Answer<D> {
        self.send(Purpose::Try, None, statements.into()).await
    }

    /// Does the same for the try of a holder. If it is granted, a connection is kept from then on.
    pub(crate) async fn fetch_try(&self, holder: &Holder, statements: Statements) -> Answer<D> {
        self.send(Purpose::Try, Some(holder.clone()), statements).await
    }

    /// Does the same for the release of a holder. If a try of the holder may still be carried out, the
    /// release follows it, even if the caller gives up. A caller that `gave_up` waits for that.
    pub(crate) async fn fetch_release(
        &self,
        holder: &Holder,
        gave_up: bool,
        statements: Statements,
    ) -> Answer<D> {
        let doubtful: Vec<_> = {
            let mut slots = self.slots();
            slots.held.remove(holder);
            let all = slots.all.iter().chain(&slots.silent);
            all.filter(|slot| slot.tries_for(holder)).cloned().collect()
        };
        let following: Vec<_> = doubtful
            .into_iter()
            .map(|slot| tokio::spawn(self.clone().release_after_the_try(slot, statements.clone())))
            .collect();
        if !gave_up || following.is_empty() {
            return self.fetch(statements).await;
        }
        let all = async {
            let mut last = Err(silence());
            for release in following {
                last = release.await.unwrap_or_else(|_| Err(silence()));
                if last.is_err() {
                    break;
                }
            }
            last
        };
        timeout(self.answer_timeout(), all).await.unwrap_or_else(|_| Err(silence()))
    }

    /// Records that a holder holds its lock. The connection over which the grant came is kept from now on:
    /// it has just answered, and no try is under way on it.
    fn keep(&self, holder: Holder, slot: &Arc<Slot<D>>) {
        let mut slots = self.slots();
        slots.held.insert(holder);
        if let Some(place) = slots.all.iter().position(|one| Arc::ptr_eq(one, slot)) {
            slots.all.swap(0, place);
        }
        self.start_keeper(&mut slots);
    }

    /// Records that a lock is held after a renewal.
    pub(crate) fn hold(&self, holder: &Holder) {
        let mut slots = self.slots();
        if !slots.held.contains(holder) {
            slots.held.insert(holder.clone());
            self.start_keeper(&mut slots);
        }
    }

    /// Records that a lock is not held any more, or not by this client.
    pub(crate) fn forget(&self, holder: &Holder) {
        self.slots().held.remove(holder);
    }

    fn start_keeper(&self, slots: &mut Slots<D>) {
        // It may have ended with its runtime.
        if slots.keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            slots.keeper = Some(tokio::spawn(keeper::keep(
                Arc::downgrade(&self.shared),
                self.shared.lost.clone(),
            )));
        }
    }

    /// Waits for a connection, and sends a request over it.
    ///
    /// # Cancellation safety
    /// A task of its own sends it. If this future is dropped, the next request over this connection still
    /// waits for the answer.
    async fn send(
        &self,
        purpose: Purpose,
        trying: Option<Holder>,
        statements: Statements,
    ) -> Answer<D> {
        let answer = async {
            let turn = self.turn(purpose).await;
            let (reply, answer) = oneshot::channel();
            tokio::spawn(self.clone().carry_out(turn, trying, statements, reply));
            answer.await.unwrap_or_else(|_| Err(silence()))
        };
        timeout(self.answer_timeout(), answer).await.unwrap_or_else(|_| Err(silence()))
    }

    /// Waits for a connection: one that is idle, or the first that isn't busy any more.
    async fn turn(&self, purpose: Purpose) -> Turn<D> {
        loop {
            let usable = self.slots().usable(purpose);
            let mut idle = usable.iter().filter_map(Slot::idle_turn);
            let turn = match idle.find(Turn::has_connection) {
                Some(turn) => turn,
                None => {
                    let mut turns: Vec<_> =
                        usable.into_iter().map(|slot| Box::pin(slot.turn())).collect();
                    match timeout(self.answer_timeout() / QUEUEING, &mut turns[0]).await {
                        Ok(turn) => turn,
                        Err(_) => select_all(turns).await.0,
                    }
                }
            };
            // Meanwhile it may have become the kept one.
            if self.slots().usable(purpose).iter().any(|slot| Arc::ptr_eq(slot, &turn.slot)) {
                return turn;
            }
        }
    }

    async fn carry_out(
        self,
        mut turn: Turn<D>,
        trying: Option<Holder>,
        statements: Statements,
        reply: oneshot::Sender<Answer<D>>,
    ) {
        // 1. Connect, if that is needed. A kept connection that is lost is made before any other.
        let connected = match trying.is_some() && self.slots().lacks_the_kept_one() {
            true => Err(not_kept()),
            false => self.connect(&mut turn).await,
        };
        if let Err(error) = connected {
            drop(turn);
            // The caller may have given up.
            let _ = reply.send(Err(error));
            return;
        }
        // 2. A release that comes from here on finds the try. If its caller has given up before, nothing is
        // sent.
        turn.slot.set_trying(trying.clone());
        if reply.is_closed() {
            turn.slot.set_trying(None);
            return;
        }
        // 3. Send it, and wait for the answer.
        let answer = self.exchange(&mut turn, statements).await;
        let is_granted = |row: &D::Row| matches!(row.number("token"), Ok(Some(_)));
        if let Some(holder) = trying {
            if answer.as_ref().is_err_and(is_lost) {
                // The server may not notice the loss, and carry out the try until its own time-out. The
                // caller learns of the loss now.
                let _ = reply.send(answer);
                sleep(self.answer_timeout()).await;
                turn.slot.set_trying(None);
                return;
            }
            // 4. What a renewal needs exists before the grant is reported.
            turn.slot.set_trying(None);
            if answer.as_ref().is_ok_and(is_granted) {
                self.keep(holder, &turn.slot);
            }
        }
        drop(turn);
        let _ = reply.send(answer);
    }

    /// Releases after the try that is under way in a slot, and repeats that if it fails.
    async fn release_after_the_try(self, slot: Arc<Slot<D>>, statements: Statements) -> Answer<D> {
        let mut pauses = pauses(LONGEST_PAUSE).take(RELEASES);
        loop {
            let mut turn = slot.clone().turn().await;
            let answer = match self.connect(&mut turn).await {
                Ok(()) => self.exchange(&mut turn, statements.clone()).await,
                Err(error) => Err(error),
            };
            drop(turn);
            match pauses.next() {
                Some(pause) if answer.is_err() => sleep(pause).await,
                _ => return answer,
            }
        }
    }

    /// Connects, unless there is a connection that answers. One that was idle may have been cut.
    pub(super) async fn connect(&self, turn: &mut Turn<D>) -> Result<(), sqlx::Error> {
        if turn.is_unused_for(IDLE)
            && let Some(mut connection) = turn.take()
            && let Ok(Ok(())) = timeout(self.answer_timeout() / 2, connection.ping()).await
        {
            turn.put(connection);
        }
        if turn.has_connection() {
            return Ok(());
        }
        turn.lose();
        let connecting = timeout(self.answer_timeout() * CONNECTING, (self.shared.connect)());
        let connected = connecting.await.unwrap_or_else(|_| Err(silence()));
        turn.put(connected.map_err(not_connected)?);
        let mut slots = self.slots();
        if slots.connected() > 1 {
            self.start_keeper(&mut slots);
        }
        Ok(())
    }

    /// Sends statements over the connection of a turn.
    async fn exchange(&self, turn: &mut Turn<D>, statements: Statements) -> Answer<D> {
        let Some(connection) = turn.take() else { return Err(silence()) };
        let begun = Moment::now();
        let mut exchange = pin!(exchange::<D>(connection, statements));
        let limit = self.answer_timeout() * SILENCE;
        let (connection, answer) = loop {
            match timeout(limit, &mut exchange).await {
                Ok(exchanged) => break exchanged,
                Err(_) if begun.elapsed() > LONGEST_SILENCE => break (None, Err(silence())),
                Err(_) => self.slots().replace(&turn.slot),
            }
        };
        match connection {
            Some(connection) => turn.put(connection),
            None => {
                turn.lose();
                self.shared.lost.notify_one();
            }
        }
        self.slots().silent.retain(|slot| !Arc::ptr_eq(slot, &turn.slot));
        answer
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, Slots<D>> {
        self.shared.slots.lock().expect("nothing panics while it holds this")
    }
}

impl<D: Database> Slots<D> {
    /// The slots that a request may use, the best first.
    fn usable(&self, purpose: Purpose) -> Vec<Arc<Slot<D>>> {
        let kept = usize::from(!self.held.is_empty());
        match purpose {
            Purpose::Try => self.all[kept..kept + SLOTS_FOR_TRIES].to_vec(),
            Purpose::Held => self.all.to_vec(),
        }
    }

    fn lacks_the_kept_one(&self) -> bool {
        !self.held.is_empty() && !self.all[0].is_connected()
    }

    /// The number of connections, without those that are silent.
    pub(super) fn connected(&self) -> usize {
        self.all.iter().filter(|slot| slot.is_connected()).count()
    }

    /// Puts an empty slot in the place of one whose request is not answered, unless there are too many of
    /// those already.
    fn replace(&mut self, silent: &Arc<Slot<D>>) {
        if self.silent.len() < MOST_SILENT
            && let Some(place) = self.all.iter_mut().find(|slot| Arc::ptr_eq(slot, silent))
        {
            self.silent.push(mem::take(place));
        }
    }
}

fn not_kept() -> sqlx::Error {
    let reason = "the connection for the held locks was lost, and is made again before any other";
    io::Error::new(io::ErrorKind::NotConnected, reason).into()
}
