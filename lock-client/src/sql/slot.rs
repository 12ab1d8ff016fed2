//! A place for one connection, over which one request is under way at a time.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use sqlx::{Arguments, AssertSqlSafe, Database, Encode, Executor, SqlSafeStr, Type};
use tokio::sync::OwnedMutexGuard;

use super::statements::Statements;
use crate::clock::Moment;

pub(super) type Answer<D> = Result<<D as Database>::Row, sqlx::Error>;

/// The states of SQL after which a connection is as good as before: a time-out of the statement, a
/// locked row or file, a deadlock.
const HARMLESS: [&str; 8] = ["57014", "55P03", "40001", "40P01", "70100", "5", "517", "6"];

/// A place for a connection. The connection is made when it is first needed, and again after an error.
pub(super) struct Slot<D: Database> {
    connection: Arc<tokio::sync::Mutex<Option<Open<D>>>>,
    /// Whether there is a connection, also while it is in use.
    is_connected: AtomicBool,
    /// The holder whose try is under way here, or may still be under way in the server.
    trying: Mutex<Option<Holder>>,
}

struct Open<D: Database> {
    connection: D::Connection,
    used: Moment,
}

/// The right to use a slot. Turns are given in the order of the requests for them.
pub(super) struct Turn<D: Database> {
    pub(super) slot: Arc<Slot<D>>,
    connection: OwnedMutexGuard<Option<Open<D>>>,
}

impl<D: Database> Default for Slot<D> {
    fn default() -> Self {
        Self {
            connection: Arc::default(),
            is_connected: AtomicBool::default(),
            trying: Mutex::default(),
        }
    }
}

impl<D: Database> Slot<D> {
    /// Waits until no other request is under way.
    pub(super) async fn turn(self: Arc<Self>) -> Turn<D> {
        let connection = self.connection.clone().lock_owned().await;
        Turn { slot: self, connection }
    }

    /// Returns a turn if no request is under way.
    pub(super) fn idle_turn(self: &Arc<Self>) -> Option<Turn<D>> {
        let connection = self.connection.clone().try_lock_owned().ok()?;
        Some(Turn { slot: self.clone(), connection })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::SeqCst)
    }

    pub(super) fn is_trying(&self) -> bool {
        self.trying().is_some()
    }

    pub(super) fn tries_for(&self, holder: &Holder) -> bool {
        self.trying().as_ref() == Some(holder)
    }

    pub(super) fn set_trying(&self, holder: Option<Holder>) {
        *self.trying() = holder;
    }

    fn trying(&self) -> MutexGuard<'_, Option<Holder>> {
        self.trying.lock().expect("nothing panics while it holds this")
    }
}

impl<D: Database> Turn<D> {
    pub(super) fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether there is a connection, and nothing was sent over it for so long.
    pub(super) fn is_unused_for(&self, time: Duration) -> bool {
        self.connection.as_ref().is_some_and(|open| open.used.elapsed() >= time)
    }

    pub(super) fn put(&mut self, connection: D::Connection) {
        *self.connection = Some(Open { connection, used: Moment::now() });
        self.slot.is_connected.store(true, Ordering::SeqCst);
    }

    /// Takes the connection, which is put back when it was used. If it is not, because the runtime ends,
    /// the next request connects again.
    pub(super) fn take(&mut self) -> Option<D::Connection> {
        self.connection.take().map(|open| open.connection)
    }

    /// Records that the connection is lost.
    pub(super) fn lose(&mut self) {
        *self.connection = None;
        self.slot.is_connected.store(false, Ordering::SeqCst);
    }
}

/// Sends statements as one message. Returns the only row of the answer, and the connection, unless it
/// can't be used any more.
pub(super) async fn exchange<D: Database>(
    mut connection: D::Connection,
    statements: Statements,
) -> (Option<D::Connection>, Answer<D>)
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
{
    let answer = fetch_only::<D>(&mut connection, statements).await;
    let is_usable = match &answer {
        Ok(_) => true,
        Err(error) if is_harmless(error) => {
            // The error may have left a transaction open. Without one, SQLite rejects this.
            let rolled_back = connection.execute("rollback").await;
            rolled_back.as_ref().err().is_none_or(|error| !is_lost(error))
        }
        Err(_) => false,
    };
    (is_usable.then_some(connection), answer)
}

async fn fetch_only<D: Database>(
    connection: &mut D::Connection,
    Statements { sql, arguments }: Statements,
) -> Answer<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
{
    let mut values = None;
    for argument in arguments {
        values
            .get_or_insert_with(D::Arguments::default)
            .add(argument)
            .map_err(sqlx::Error::Encode)?;
    }
    // All of the answer is read: the row comes before the outcome of the commit.
    let rows = connection.fetch_all((AssertSqlSafe(sql).into_sql_str(), values)).await;
    rows?.pop().ok_or(sqlx::Error::RowNotFound)
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
