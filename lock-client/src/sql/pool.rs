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
    io,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    time::Duration,
};

use fence::Holder;
use sqlx::{Connection, Database};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    answer::LockDatabase,
    line::{Answer, Connected, Line, Statements, Turn, is_lost, not_connected, silence},
    tries::Tries,
};
use crate::{clock::Moment, keeper::Keeper, kept_for::KeptFor, ttl::Ttl};

/// How often the connection for held locks is used at least. So its loss is noticed, and neither a proxy
/// nor the server takes it for idle.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long connecting may take, in answer time-outs.
const CONNECTING: u32 = 10;
/// How long a lock that is taken over needs the connection before its first renewal is answered, in answer
/// time-outs. An adoption ends after 4 of them.
const ADOPTION: u32 = 8;

type Connecting<D> = Pin<Box<dyn Future<Output = Result<Connected<D>, sqlx::Error>> + Send>>;

pub(crate) type Connect<D> = Arc<dyn Fn() -> Connecting<D> + Send + Sync>;

/// The connections of a client. Clones share them.
pub(crate) struct Pool<D: Database>(pub(super) Arc<Shared<D>>);

pub(super) struct Shared<D: Database> {
    connect: Connect<D>,
    answer_timeout: Duration,
    /// For renewals, reissues and releases of held locks, and for reads if the other one is in use or lost.
    held: Arc<Line<D>>,
    others: Arc<Line<D>>,
    /// The first of the requests that wait for the connection for held locks behind the renewals.
    first_behind: tokio::sync::Mutex<()>,
    pub(super) tries: Tries,
    /// The releases that follow tries.
    pub(super) following: TaskTracker,
    kept_for: KeptFor,
    /// The task that keeps the connection for held locks.
    keeper: Keeper,
}

/// The requests among which one waits for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// Renewals and reissues of held locks.
    Renewals,
    /// What needs the connection for held locks, and can wait for the renewals.
    BehindRenewals,
    /// What needs any other connection.
    Others,
}

/// What a request does to the locks that this client holds.
#[derive(Clone)]
pub(crate) enum Purpose {
    /// The try of a holder, which may grant a lock.
    Try(Holder, Ttl),
    /// The renewal of a holder whose lock was granted to this client, or adopted by it.
    Renewal(Holder, Ttl),
    Other,
}

impl<D: Database> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
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
            tries: Tries::default(),
            following: TaskTracker::new(),
            kept_for: KeptFor::default(),
            keeper: Keeper::default(),
        }))
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.0.answer_timeout
    }

    pub(crate) fn kept_for(&self) -> &KeptFor {
        &self.0.kept_for
    }

    /// Records that a lock is taken over. The renewal that follows may fail.
    pub(crate) fn adopt(&self, holder: &Holder) {
        self.0.kept_for.adopt(holder, Moment::now() + self.answer_timeout() * ADOPTION);
    }

    /// Sends statements that only read, as one message, and returns the only row of the answer.
    pub(crate) async fn fetch(&self, statements: Statements) -> Answer<D> {
        let Shared { held, others, .. } = &*self.0;
        let idle = others.idle_turn();
        let is_ready = idle.is_some_and(|turn| turn.has_connection());
        let queue =
            if !is_ready && held.is_connected() { Queue::BehindRenewals } else { Queue::Others };
        self.send_twice(queue, Purpose::Other, statements).await
    }

    /// Sends a renewal or a reissue of a held lock, which may be carried out twice.
    pub(crate) async fn fetch_held(&self, purpose: Purpose, statements: Statements) -> Answer<D> {
        self.send_twice(Queue::Renewals, purpose, statements).await
    }

    /// Sends statements once, and never over the connection for held locks.
    pub(crate) async fn fetch_aside(&self, statements: Statements) -> Answer<D> {
        self.send(Queue::Others, Purpose::Other, statements).await
    }

    /// Sends the try of a holder. If it is granted, there is a connection for held locks from then on.
    pub(crate) async fn fetch_try(
        &self,
        holder: &Holder,
        ttl: Ttl,
        statements: Statements,
    ) -> Answer<D> {
        self.send(Queue::Others, Purpose::Try(holder.clone(), ttl), statements).await
    }

    /// Sends a request once more if its connection is lost, as one that was idle may be. If that fails,
    /// the first may have been carried out all the same.
    async fn send_twice(
        &self,
        queue: Queue,
        purpose: Purpose,
        statements: Statements,
    ) -> Answer<D> {
        match self.send(queue, purpose.clone(), statements.clone()).await {
            Err(lost) if is_lost(&lost) => {
                self.send(queue, purpose, statements).await.map_err(|_| lost)
            }
            answer => answer,
        }
    }

    /// Waits for a connection, and sends a request over it.
    ///
    /// # Cancellation safety
    /// A task of its own sends it. If this future is dropped, the next request over this connection still
    /// waits for the answer.
    pub(super) async fn send(
        &self,
        queue: Queue,
        purpose: Purpose,
        statements: Statements,
    ) -> Answer<D> {
        let turn = self.turn_in_time(queue).await?;
        let (reply, answer) = oneshot::channel();
        tokio::spawn(self.clone().carry_out(turn, purpose, statements, reply));
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
        purpose: Purpose,
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
        let trying = match &purpose {
            Purpose::Try(holder, _) => Some(self.0.tries.begin(holder)),
            _ => None,
        };
        if reply.is_closed() {
            *turn.connection = Some(connection);
            return;
        }
        // 3. Send it, and wait for the answer.
        let replacement = self.replacement(&line);
        let (turn, mut connection, answer) = turn.send(connection, statements, replacement).await;
        let is_doubtful = answer.as_ref().is_err_and(is_lost);
        if !is_doubtful {
            line.count_answer();
        }
        let has_token = |row: &D::Row| matches!(D::number(row, "token"), Ok(Some(_)));
        let has_token = answer.as_ref().is_ok_and(has_token);
        // 4. What a renewal needs exists before the lock is reported as held. A turn of a renewal already
        // is one of the connection for held locks: to wait for another turn would never end.
        if let Purpose::Try(holder, ttl) | Purpose::Renewal(holder, ttl) = &purpose
            && has_token
            && !reply.is_closed()
        {
            match trying {
                Some(_) => self.0.kept_for.begin(holder, *ttl),
                None => self.0.kept_for.extend(holder, *ttl),
            }
            if trying.is_some() || turn.is_none() {
                self.keep(&mut connection).await;
            }
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

    /// Makes another connection for those that wait, with the permit to leave the silent one.
    async fn replacement(&self, line: &Arc<Line<D>>) -> (OwnedSemaphorePermit, Connected<D>) {
        loop {
            sleep(self.answer_timeout() / 4).await;
            if line.is_awaited()
                && let Some(permit) = line.permit_to_replace()
                && let Ok(connection) = self.connect(line).await
            {
                return (permit, connection);
            }
        }
    }

    async fn connect(&self, line: &Arc<Line<D>>) -> Result<Connected<D>, sqlx::Error> {
        let held = &self.0.held;
        if !Arc::ptr_eq(line, held) && !held.is_connected() && self.0.kept_for.are_held() {
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

    /// Makes the connection of a grant, which is recorded, the one for held locks, unless there is one.
    async fn keep(&self, granted_over: &mut Option<Connected<D>>) {
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
        self.0.keeper.start(|| keep(Arc::downgrade(&self.0)));
    }

    /// Once no lock is held, passes its connection on or closes it, and returns true. If a request is under
    /// way, it may be the renewal of a lock that is adopted. To wait for it would have it replaced.
    async fn give_back(&self) -> bool {
        let Some(mut held) = self.0.held.idle_turn() else { return false };
        // A grant does three things in this order: it is recorded, starts the keeper, and looks for the
        // connection. So either it is seen here, or it finds neither a keeper nor a connection.
        let give_up = || {
            let is_unneeded = !self.0.kept_for.are_held();
            if is_unneeded {
                self.0.held.set_connected(None);
            }
            is_unneeded
        };
        if !self.0.keeper.end_if(give_up) {
            return false;
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
}

/// Checks the connection for held locks, as long as there are any, and makes it again when it is lost.
async fn keep<D: LockDatabase>(client: Weak<Shared<D>>) {
    let mut pause = CHECK_INTERVAL;
    loop {
        sleep(pause).await;
        let Some(shared) = client.upgrade() else { return };
        let pool = Pool(shared);
        if !pool.0.kept_for.are_held() {
            if pool.give_back().await {
                return;
            }
            pause = CHECK_INTERVAL;
            continue;
        }
        let check = Statements::from("select 1".to_owned());
        pause = match pool.send_twice(Queue::Renewals, Purpose::Other, check).await {
            Ok(_) => CHECK_INTERVAL,
            Err(error) => {
                tracing::debug!(%error, "the connection for held locks can't be made");
                CHECK_INTERVAL / 4
            }
        };
    }
}
