//! One connection, and the queue of the requests that need it.

use std::{
    io,
    pin::pin,
    sync::{
        Arc, Mutex as StdMutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{Either, select};
use sqlx::Database;
use tokio::{
    sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::answer::LockDatabase;
use crate::mutex::Locked;

pub(super) type Answer<D> = Result<<D as Database>::Row, sqlx::Error>;

/// The states of SQL after which a connection is as good as before: a time-out of the statement, a
/// locked row or file, a deadlock.
const HARMLESS: [&str; 8] = ["57014", "55P03", "40001", "40P01", "70100", "5", "517", "6"];
/// How many silent connections of a line may be replaced at once. A server whose commits are stuck keeps the
/// session even of a closed connection: it would run out of sessions.
const MOST_REPLACED: usize = 3;
/// How long a connection that was replaced counts as one of these, if it is not answered before.
const REPLACED_FOR: Duration = Duration::from_secs(15);
/// How long an answer is waited for. So a line has some 60 silent connections at most.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// Statements that are sent as one message, and answered with one row.
#[derive(Clone)]
pub(crate) struct Statements {
    pub(crate) sql: String,
    /// The values of `?1`, `?2` and so on. With them, the statements stay prepared on their connection.
    /// Without any, nothing is prepared, as PgBouncer needs it.
    pub(crate) arguments: Vec<String>,
}

impl From<String> for Statements {
    fn from(sql: String) -> Self {
        Self { sql, arguments: Vec::new() }
    }
}

/// Whether a connection may still be used.
type IsCurrent = Arc<dyn Fn() -> bool + Send + Sync>;

/// A connection, until its server is replaced.
pub(crate) struct Connected<D: Database> {
    pub(crate) connection: D::Connection,
    /// Whether no newer primary than its server is known.
    pub(crate) is_current: IsCurrent,
}

impl<D: Database> Connected<D> {
    /// A connection to a server that nothing replaces.
    pub(crate) fn new(connection: D::Connection) -> Self {
        Self { connection, is_current: Arc::new(|| true) }
    }

    pub(super) fn is_current(&self) -> bool {
        (self.is_current)()
    }
}

/// A connection that one request at a time may use.
pub(super) struct Line<D: Database> {
    connection: Arc<Mutex<Option<Connected<D>>>>,
    /// Whether the connection may be used, also while a request uses it. `None` if there is none.
    state: StdMutex<Option<IsCurrent>>,
    answers: AtomicU64,
    /// The permits to replace it.
    replacements: Arc<Semaphore>,
}

/// The right to use a line. Turns are given in the order of the requests for them.
pub(super) struct Turn<D: Database> {
    pub(super) line: Arc<Line<D>>,
    /// Taken while it is in use. If it is not put back, because it was lost or the runtime ends, the
    /// next request connects again.
    pub(super) connection: OwnedMutexGuard<Option<Connected<D>>>,
}

impl<D: Database> Default for Line<D> {
    fn default() -> Self {
        Self {
            connection: Arc::default(),
            state: StdMutex::default(),
            answers: AtomicU64::default(),
            replacements: Arc::new(Semaphore::new(MOST_REPLACED)),
        }
    }
}

impl<D: Database> Line<D> {
    /// Waits until no other request is under way.
    pub(super) async fn turn(self: &Arc<Self>) -> Turn<D> {
        let connection = self.connection.clone().lock_owned().await;
        Turn { line: self.clone(), connection }
    }

    pub(super) fn idle_turn(self: &Arc<Self>) -> Option<Turn<D>> {
        let connection = self.connection.clone().try_lock_owned().ok()?;
        Some(Turn { line: self.clone(), connection })
    }

    /// Whether there is a connection that may be used.
    pub(super) fn is_connected(&self) -> bool {
        self.state.locked().as_ref().is_some_and(|is_current| is_current())
    }

    pub(super) fn set_connected(&self, connected: Option<&Connected<D>>) {
        *self.state.locked() = connected.map(|connected| connected.is_current.clone());
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn count_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a permit to leave the connection, which is silent, to its request.
    pub(super) fn permit_to_replace(&self) -> Option<OwnedSemaphorePermit> {
        self.replacements.clone().try_acquire_owned().ok()
    }

    /// Whether a request waits while another one is under way. Each of both refers to the connection, as
    /// this line does.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.connection) > 2
    }
}

impl<D: Database> Turn<D> {
    /// Whether there is a connection that may be used.
    pub(super) fn has_connection(&self) -> bool {
        self.connection.as_ref().is_some_and(Connected::is_current)
    }
}

impl<D: LockDatabase> Turn<D> {
    /// Sends statements, and returns the connection, unless it can't be used any more. If there is a
    /// replacement before the answer, the turn is over: the next request gets the replacement.
    pub(super) async fn send(
        mut self,
        connection: Connected<D>,
        statements: Statements,
        replacement: impl Future<Output = (OwnedSemaphorePermit, Connected<D>)>,
    ) -> (Option<Self>, Option<Connected<D>>, Answer<D>) {
        let asking = pin!(timeout(LONGEST_SILENCE, exchange::<D>(connection, statements)));
        let (turn, exchanged) = match select(asking, pin!(replacement)).await {
            Either::Left((exchanged, _)) => (Some(self), exchanged),
            Either::Right(((permit, replacement), mut asking)) => {
                *self.connection = Some(replacement);
                drop(self);
                let soon = timeout(REPLACED_FOR, &mut asking).await;
                drop(permit);
                let exchanged = match soon {
                    Ok(exchanged) => exchanged,
                    Err(_) => asking.await,
                };
                (None, exchanged)
            }
        };
        let (connection, answer) = exchanged.unwrap_or_else(|_| (None, Err(silence())));
        (turn, connection, answer)
    }
}

impl<D: Database> Drop for Turn<D> {
    fn drop(&mut self) {
        self.line.set_connected(self.connection.as_ref());
    }
}

/// Sends statements as one message. Returns the only row of the answer, and the connection, unless it
/// can't be used any more. What a primary answers that was replaced meanwhile proves nothing.
async fn exchange<D: LockDatabase>(
    mut connected: Connected<D>,
    statements: Statements,
) -> (Option<Connected<D>>, Answer<D>) {
    let connection = &mut connected.connection;
    let answer = D::fetch_only(connection, statements).await;
    let is_usable = match &answer {
        Ok(_) => true,
        Err(error) if is_harmless(error) => {
            // The error may have left a transaction open. Without one, SQLite rejects this.
            let rolled_back = D::fetch_only(connection, "rollback".to_owned().into()).await;
            rolled_back.as_ref().err().is_none_or(|error| !is_lost(error))
        }
        Err(_) => false,
    };
    match connected.is_current() {
        true => (is_usable.then_some(connected), answer),
        false => (None, Err(replaced())),
    }
}

/// Whether the request may still be under way in the server.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    !matches!(error, sqlx::Error::Database(_) | sqlx::Error::RowNotFound)
}

fn is_harmless(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| HARMLESS.contains(&&*code))
}

/// Marks an error of encryption. Here it proves that nothing was sent. On a connection that was made,
/// the same error leaves the outcome unknown.
pub(super) fn not_connected(error: sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            sqlx::Error::Tls(error.into())
        }
        error => error,
    }
}

fn replaced() -> sqlx::Error {
    let reason = "the server was replaced by a newer primary";
    io::Error::new(io::ErrorKind::ConnectionReset, reason).into()
}

pub(super) fn silence() -> sqlx::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}
