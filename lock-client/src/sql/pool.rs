//! The connections of a client: one for the locks that it holds, and one for all else.
//!
//! The connection for held locks exists before a grant is reported: the one over which the grant came
//! becomes it, unless there is one. So other clients can't use up what a renewal needs, and no renewal
//! waits behind a try, and behind one release or read at most. It is checked every second, and made again
//! before any other. When no lock is held any more, one connection remains.
//!
//! A connection whose answer takes long is left to its request, and the requests behind it get a new one.
//! It is left only once there is a new one, because a server may have no connection left. So the answer of a
//! try is not missed: a grant that nobody waits for is released.
//!
//! The answer time-out begins when a request is sent. Before that, a request waits as long as others are
//! answered.

use std::{
    collections::HashMap,
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use fence::Holder;
use futures_util::future::{Either, join, select};
use sqlx::{Connection, Database};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    answer::LockDatabase,
    line::{Answer, Connected, Line, Statements, Turn, exchange, is_lost, not_connected, silence},
};
use crate::{clock::Moment, retry::pauses, ttl::Ttl};

/// How often the connection for held locks is used at least. So its loss is noticed, and neither a proxy
/// nor the server takes it for idle.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long connecting may take, in answer time-outs.
const CONNECTING: u32 = 10;
/// How long a connection that was replaced counts as one of the few, if it is not answered before.
const REPLACED_FOR: Duration = Duration::from_secs(15);
/// How long an answer is waited for.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// How often a release is repeated that must follow a try. The pauses add up to some 20 seconds.
const RELEASES: usize = 25;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Connecting<D> = Pin<Box<dyn Future<Output = Result<Connected<D>, sqlx::Error>> + Send>>;

/// Makes a connection.
pub(crate) type Connect<D> = Arc<dyn Fn() -> Connecting<D> + Send + Sync>;

/// The connections of a client. Clones share them.
pub(crate) struct Pool<D: Database>(Arc<Shared<D>>);

struct Shared<D: Database> {
    connect: Connect<D>,
    answer_timeout: Duration,
    /// For renewals, reissues and releases of held locks, and for reads if the other one is in use or lost.
    held: Arc<Line<D>>,
    others: Arc<Line<D>>,
    /// The first of the requests that wait for the connection for held locks behind the renewals.
    first_behind: tokio::sync::Mutex<()>,
    /// The holders of the tries that may still be carried out.
    trying: watch::Sender<Vec<Holder>>,
    /// The releases that follow tries.
    following: TaskTracker,
    leases: Mutex<Leases>,
}

/// The requests among which one waits for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// Renewals and reissues of held locks.
    Renewals,
    /// What needs the connection for held locks, and can wait for the renewals.
    BehindRenewals,
    /// What needs any other connection.
    Others,
}

/// The locks that this client may hold.
#[derive(Default)]
struct Leases {
    /// Until when each needs a connection: it expires then, or it was released.
    until: HashMap<Holder, Moment>,
    /// The task that checks the connection. It may have ended with its runtime.
    keeper: Option<JoinHandle<()>>,
}

impl<D: Database> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A try that may still be carried out, until this value is dropped.
struct Trying<D: Database> {
    pool: Pool<D>,
    holder: Holder,
}

impl<D: Database> Drop for Trying<D> {
    fn drop(&mut self) {
        self.pool.0.trying.send_modify(|trying| {
            if let Some(place) = trying.iter().position(|holder| *holder == self.holder) {
                trying.swap_remove(place);
            }
        });
    }
}

impl Leases {
    fn are_held(&mut self) -> bool {
        self.until.retain(|_, until| !until.has_passed());
        !self.until.is_empty()
    }
}

impl<D: LockDatabase> Pool<D> {
    pub(crate) fn new(connect: Connect<D>, answer_timeout: Duration) -> Self {
        Self(Arc::new(Shared {
            connect,
            answer_timeout,
            held: Arc::default(),
            others: Arc::default(),
            first_behind: tokio::sync::Mutex::default(),
            trying: watch::Sender::default(),
            following: TaskTracker::new(),
            leases: Mutex::default(),
        }))
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.0.answer_timeout
    }

    /// Sends statements that only read, as one message, and returns the only row of the answer.
    pub(crate) async fn fetch(&self, statements: Statements) -> Answer<D> {
        let Shared { held, others, .. } = &*self.0;
        let idle = others.idle_turn();
        let is_ready = idle.is_some_and(|turn| turn.has_connection());
        let queue =
            if !is_ready && held.is_connected() { Queue::BehindRenewals } else { Queue::Others };
        self.send_twice(queue, statements).await
    }

    /// Sends a renewal or a reissue of a held lock, which may be carried out twice.
    pub(crate) async fn fetch_held(&self, statements: Statements) -> Answer<D> {
        self.send_twice(Queue::Renewals, statements).await
    }

    /// Sends statements once, and never over the connection for held locks.
    pub(crate) async fn fetch_aside(&self, statements: Statements) -> Answer<D> {
        self.send(Queue::Others, None, statements).await
    }

    /// Sends the try of a holder. If it is granted, there is a connection for held locks from then on.
    pub(crate) async fn fetch_try(
        &self,
        holder: &Holder,
        ttl: Ttl,
        statements: Statements,
    ) -> Answer<D> {
        self.send(Queue::Others, Some((holder.clone(), ttl)), statements).await
    }

    /// Sends the release of a holder. If a try of the holder may still be carried out, another release
    /// follows it, even if the caller gives up. A caller that `gave_up` the lock waits for that one.
    pub(crate) async fn fetch_release(
        &self,
        holder: &Holder,
        gave_up: bool,
        statements: Statements,
    ) -> Answer<D> {
        let is_tried = self.0.trying.borrow().contains(holder);
        let following = is_tried
            .then(|| self.clone().release_after_tries(holder.clone(), statements.clone()))
            .map(|release| self.0.following.spawn(release));
        let answer = match following {
            Some(release) if gave_up => timeout(self.answer_timeout(), release)
                .await
                .map_or_else(|_| Err(silence()), |ended| ended.unwrap_or_else(|_| Err(silence()))),
            None if gave_up => self.fetch_aside(statements).await,
            _ => self.send(Queue::BehindRenewals, None, statements).await,
        };
        if answer.is_ok() {
            self.let_go(holder);
        }
        answer
    }

    /// Waits for the releases that follow tries, also of callers that gave up.
    pub(crate) async fn wait_for_releases(&self) {
        self.0.following.close();
        self.0.following.wait().await;
    }

    async fn release_after_tries(self, holder: Holder, statements: Statements) -> Answer<D> {
        let mut trying = self.0.trying.subscribe();
        // 1. The server may have carried out the try, and only its answer is lost.
        let first = self.fetch_aside(statements.clone());
        // 2. It may carry it out later. The sender lives as long as this pool.
        let tried = async {
            let _ = trying.wait_for(|trying| !trying.contains(&holder)).await;
        };
        let _ = join(first, tried).await;
        let mut pauses = pauses(LONGEST_PAUSE).take(RELEASES);
        loop {
            let answer = self.fetch_aside(statements.clone()).await;
            if answer.is_ok() {
                self.let_go(&holder);
                return answer;
            }
            match pauses.next() {
                Some(pause) => sleep(pause).await,
                None => return answer,
            }
        }
    }

    /// Records that a lock may be held for so long.
    pub(crate) fn hold(&self, holder: &Holder, ttl: Ttl) {
        self.leases().until.insert(holder.clone(), Moment::now() + ttl.as_duration());
    }

    /// Records that a lock is not held any more. The next grant may follow soon.
    pub(crate) fn let_go(&self, holder: &Holder) {
        if let Some(until) = self.leases().until.get_mut(holder) {
            *until = (*until).min(Moment::now() + CHECK_INTERVAL);
        }
    }

    /// Sends a request once more if its connection is lost, as one that was idle may be. If that fails,
    /// the first may have been carried out all the same.
    async fn send_twice(&self, queue: Queue, statements: Statements) -> Answer<D> {
        match self.send(queue, None, statements.clone()).await {
            Err(lost) if is_lost(&lost) => {
                self.send(queue, None, statements).await.map_err(|_| lost)
            }
            answer => answer,
        }
    }

    /// Waits for a connection, and sends a request over it.
    ///
    /// # Cancellation safety
    /// A task of its own sends it. If this future is dropped, the next request over this connection still
    /// waits for the answer.
    async fn send(
        &self,
        queue: Queue,
        trying: Option<(Holder, Ttl)>,
        statements: Statements,
    ) -> Answer<D> {
        let turn = self.turn_in_time(queue).await?;
        let (reply, answer) = oneshot::channel();
        tokio::spawn(self.clone().carry_out(turn, trying, statements, reply));
        let answer = timeout(self.answer_timeout(), answer).await;
        answer.map_or_else(|_| Err(silence()), |sent| sent.unwrap_or_else(|_| Err(silence())))
    }

    /// Waits for a turn, as long as those who had theirs before are answered.
    async fn turn_in_time(&self, queue: Queue) -> Result<Turn<D>, sqlx::Error> {
        let Shared { held, others, .. } = &*self.0;
        let line = if queue == Queue::Others { others } else { held };
        let mut turn = pin!(self.turn(queue));
        loop {
            let answers = line.answers();
            match timeout(self.answer_timeout(), &mut turn).await {
                Ok(turn) => return Ok(turn),
                Err(_) if line.answers() != answers => {}
                Err(_) => return Err(silence()),
            }
        }
    }

    async fn turn(&self, queue: Queue) -> Turn<D> {
        let Shared { held, others, first_behind, .. } = &*self.0;
        match queue {
            Queue::Renewals => held.turn().await,
            Queue::BehindRenewals => {
                // Turns are given in order, so a renewal is behind one of these at most.
                let _first = first_behind.lock().await;
                held.turn().await
            }
            Queue::Others => others.turn().await,
        }
    }

    async fn carry_out(
        self,
        mut turn: Turn<D>,
        trying: Option<(Holder, Ttl)>,
        statements: Statements,
        reply: oneshot::Sender<Answer<D>>,
    ) {
        // 1. Connect, if that is needed.
        let line = turn.line.clone();
        let connection = match turn.connection.take().filter(Connected::is_current) {
            Some(connection) => Ok(connection),
            None => self.connect(&line).await,
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                drop(turn);
                // The caller may have given up.
                let _ = reply.send(Err(error));
                return;
            }
        };
        // 2. A release that comes from here on waits for the try. If its caller has given up before, nothing
        // is sent.
        let _trying = trying.as_ref().map(|(holder, _)| self.begin_try(holder));
        if reply.is_closed() {
            *turn.connection = Some(connection);
            return;
        }
        // 3. Send it, and wait for the answer.
        let (turn, mut connection, answer) = self.exchange(turn, connection, statements).await;
        let is_doubtful = answer.as_ref().is_err_and(is_lost);
        if !is_doubtful {
            line.count_answer();
        }
        let has_token = |row: &D::Row| matches!(D::number(row, "token"), Ok(Some(_)));
        let has_token = answer.as_ref().is_ok_and(has_token);
        // 4. What a renewal needs exists before the grant is reported.
        if let Some((holder, ttl)) = &trying
            && has_token
            && !reply.is_closed()
        {
            self.keep(holder, *ttl, &mut connection).await;
        }
        // 5. The next request gets the connection, unless it has another one.
        if let Some(mut turn) = turn {
            *turn.connection = connection;
        }
        let _ = reply.send(answer);
        // 6. The server may not notice a loss, and carry out the try until its own time-out.
        if is_doubtful && trying.is_some() {
            sleep(self.answer_timeout()).await;
        }
    }

    /// Sends statements. If the answer takes long while others wait for their turn, they get another
    /// connection, and the turn is over.
    async fn exchange(
        &self,
        mut turn: Turn<D>,
        connection: Connected<D>,
        statements: Statements,
    ) -> (Option<Turn<D>>, Option<Connected<D>>, Answer<D>) {
        let line = turn.line.clone();
        let asking = pin!(timeout(LONGEST_SILENCE, exchange::<D>(connection, statements)));
        let (exchanged, turn) = match select(asking, pin!(self.replacement(&line))).await {
            Either::Left((exchanged, _)) => (exchanged, Some(turn)),
            Either::Right(((permit, replacement), mut asking)) => {
                *turn.connection = Some(replacement);
                drop(turn);
                let soon = timeout(REPLACED_FOR, &mut asking).await;
                drop(permit);
                let exchanged = match soon {
                    Ok(exchanged) => exchanged,
                    Err(_) => asking.await,
                };
                (exchanged, None)
            }
        };
        let (connection, answer) = exchanged.unwrap_or_else(|_| (None, Err(silence())));
        (turn, connection, answer)
    }

    /// Makes another connection for those that wait, with the permit to leave the silent one.
    async fn replacement(&self, line: &Arc<Line<D>>) -> (OwnedSemaphorePermit, Connected<D>) {
        loop {
            sleep(self.answer_timeout() / 4).await;
            if line.is_awaited()
                && let Ok(permit) = line.replacements.clone().try_acquire_owned()
                && let Ok(connection) = self.connect(line).await
            {
                return (permit, connection);
            }
        }
    }

    async fn connect(&self, line: &Arc<Line<D>>) -> Result<Connected<D>, sqlx::Error> {
        let held = &self.0.held;
        if !Arc::ptr_eq(line, held) && !held.is_connected() && self.leases().are_held() {
            let reason =
                "the connection for held locks was lost, and is made again before any other";
            return Err(io::Error::new(io::ErrorKind::NotConnected, reason).into());
        }
        // Other clients may have all further connections.
        if Arc::ptr_eq(line, held)
            && let Some(mut idle) = self.0.others.idle_turn()
            && let Some(connection) = idle.connection.take().filter(Connected::is_current)
        {
            self.start_keeper();
            return Ok(connection);
        }
        let connecting = timeout(self.answer_timeout() * CONNECTING, (self.0.connect)());
        let connected = connecting.await.unwrap_or_else(|_| Err(silence())).map_err(not_connected);
        if Arc::ptr_eq(line, held) {
            self.start_keeper();
        }
        connected
    }

    fn begin_try(&self, holder: &Holder) -> Trying<D> {
        self.0.trying.send_modify(|trying| trying.push(holder.clone()));
        Trying { pool: self.clone(), holder: holder.clone() }
    }

    /// Makes the connection of a grant the one for held locks, unless there is one.
    async fn keep(&self, holder: &Holder, ttl: Ttl, granted_over: &mut Option<Connected<D>>) {
        self.hold(holder, ttl);
        self.start_keeper();
        let held = &self.0.held;
        if !held.is_connected() {
            let mut turn = held.turn().await;
            if !turn.has_connection() {
                *turn.connection = granted_over.take();
            }
        }
    }

    fn start_keeper(&self) {
        let keeper = &mut self.leases().keeper;
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *keeper = Some(tokio::spawn(keep(Arc::downgrade(&self.0))));
        }
    }

    /// Once no lock is held, passes its connection on or closes it, and returns true.
    async fn give_back(&self) -> bool {
        let mut held = self.0.held.turn().await;
        {
            // A grant is recorded before it looks for a connection.
            let mut leases = self.leases();
            if leases.are_held() {
                return false;
            }
            leases.keeper = None;
            self.0.held.set_connected(None);
        }
        let connection = held.connection.take();
        drop(held);
        match self.0.others.idle_turn() {
            Some(mut others) if others.connection.is_none() => *others.connection = connection,
            _ => {
                if let Some(Connected { connection, .. }) = connection {
                    let _ = timeout(self.answer_timeout(), connection.close()).await;
                }
            }
        }
        true
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.0.leases.lock().expect("nothing panics while it holds this")
    }
}

/// Checks the connection for held locks, as long as there are any, and makes it again when it is lost.
async fn keep<D: LockDatabase>(client: Weak<Shared<D>>) {
    let mut pause = CHECK_INTERVAL;
    loop {
        sleep(pause).await;
        let Some(shared) = client.upgrade() else { return };
        let pool = Pool(shared);
        if !pool.leases().are_held() && pool.give_back().await {
            return;
        }
        let check = Statements::from("select 1".to_owned());
        pause = match pool.send_twice(Queue::Renewals, check).await {
            Ok(_) => CHECK_INTERVAL,
            Err(error) => {
                tracing::debug!(%error, "the connection for held locks can't be made");
                CHECK_INTERVAL / 4
            }
        };
    }
}
