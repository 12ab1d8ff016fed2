//! One connection, and the queue of the requests that need it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sqlx::Database;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

use super::answer::LockDatabase;

pub(super) type Answer<D> = Result<<D as Database>::Row, sqlx::Error>;

/// The states of SQL after which a connection is as good as before: a time-out of the statement, a
/// locked row or file, a deadlock.
const HARMLESS: [&str; 8] = ["57014", "55P03", "40001", "40P01", "70100", "5", "517", "6"];
/// How many connections without an answer are kept beside the one of a line. A server whose commits are
/// stuck keeps the session of a closed connection: it would run out of sessions.
const MOST_SILENT: usize = 2;

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

/// A connection that one request at a time may use.
pub(super) struct Line<D: Database> {
    connection: Arc<Mutex<Option<D::Connection>>>,
    /// Whether there is a connection, also while a request uses it.
    pub(super) is_connected: AtomicBool,
    pub(super) silent: Arc<Semaphore>,
}

/// The right to use a line. Turns are given in the order of the requests for them.
pub(super) struct Turn<D: Database> {
    pub(super) line: Arc<Line<D>>,
    /// Taken while it is in use. If it is not put back, because it was lost or the runtime ends, the
    /// next request connects again.
    pub(super) connection: OwnedMutexGuard<Option<D::Connection>>,
}

impl<D: Database> Default for Line<D> {
    fn default() -> Self {
        Self {
            connection: Arc::default(),
            is_connected: AtomicBool::default(),
            silent: Arc::new(Semaphore::new(MOST_SILENT)),
        }
    }
}

impl<D: Database> Line<D> {
    /// Waits until no other request is under way.
    pub(super) async fn turn(self: &Arc<Self>) -> Turn<D> {
        let connection = self.connection.clone().lock_owned().await;
        Turn { line: self.clone(), connection }
    }

    /// Returns a turn if no request is under way.
    pub(super) fn idle_turn(self: &Arc<Self>) -> Option<Turn<D>> {
        let connection = self.connection.clone().try_lock_owned().ok()?;
        Some(Turn { line: self.clone(), connection })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::SeqCst)
    }

    /// Whether a request waits while another one is under way. Each of both refers to the connection, as
    /// this line does.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.connection) > 2
    }
}

impl<D: Database> Drop for Turn<D> {
    fn drop(&mut self) {
        self.line.is_connected.store(self.connection.is_some(), Ordering::SeqCst);
    }
}

/// Sends statements as one message. Returns the only row of the answer, and the connection, unless it
/// can't be used any more.
pub(super) async fn exchange<D: LockDatabase>(
    mut connection: D::Connection,
    statements: Statements,
) -> (Option<D::Connection>, Answer<D>) {
    let answer = D::fetch_only(&mut connection, statements).await;
    let is_usable = match &answer {
        Ok(_) => true,
        Err(error) if is_harmless(error) => {
            // The error may have left a transaction open. Without one, SQLite rejects this.
            let rolled_back = D::fetch_only(&mut connection, "rollback".to_owned().into()).await;
            rolled_back.as_ref().err().is_none_or(|error| !is_lost(error))
        }
        Err(_) => false,
    };
    (is_usable.then_some(connection), answer)
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

pub(super) fn silence() -> sqlx::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}
