//! One connection, over which one request is under way at a time.

use std::{io, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Database, Executor, raw_sql};
use tokio::{
    sync::{Mutex, OwnedMutexGuard, oneshot},
    time::timeout,
};

use super::unanswered::Unanswered;

/// How long connecting may take, in answer time-outs.
const CONNECTING: u32 = 10;
/// How long an answer may take until the connection is replaced, in answer time-outs. It is shorter
/// than the patience of a single try.
const SILENCE: u32 = 2;
/// How long a connection that was replaced is kept. Its answer is still awaited, because the request
/// may have to be undone. Besides, a server whose commits are stuck keeps the session of a closed
/// connection: it would run out of sessions.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// The options of a connection.
pub(crate) type Options<D> = <<D as Database>::Connection as Connection>::Options;
type Present<D> = Option<<D as Database>::Connection>;

/// A connection, which is made when it is first needed, and again after an error. If it is silent, a
/// second one replaces it. If both are silent, requests wait for one of them.
pub(super) struct Lane<D: Database> {
    connection: Arc<Mutex<Present<D>>>,
    /// Locked by the connection that was replaced.
    replaced: Arc<Mutex<()>>,
    unanswered: Unanswered,
}

/// The right to send the next request over a lane.
pub(super) struct Turn<D: Database> {
    lane: Lane<D>,
    connection: OwnedMutexGuard<Present<D>>,
}

/// Statements that are sent as one message, and answered with one row.
pub(super) struct Request<D: Database> {
    pub(super) options: Options<D>,
    pub(super) answer_timeout: Duration,
    pub(super) key: String,
    pub(super) sql: String,
}

type Answer<D> = Result<<D as Database>::Row, sqlx::Error>;

impl<D: Database> Clone for Lane<D> {
    fn clone(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            replaced: self.replaced.clone(),
            unanswered: self.unanswered.clone(),
        }
    }
}

impl<D: Database> Default for Lane<D> {
    fn default() -> Self {
        Self {
            connection: Arc::default(),
            replaced: Arc::default(),
            unanswered: Unanswered::default(),
        }
    }
}

impl<D: Database> Lane<D> {
    /// Waits until no other request is under way. Turns are taken in the order of the calls.
    pub(super) async fn turn(&self) -> Turn<D> {
        Turn { lane: self.clone(), connection: self.connection.clone().lock_owned().await }
    }

    /// Returns a turn if no other request is under way.
    pub(super) fn idle_turn(&self) -> Option<Turn<D>> {
        let connection = self.connection.clone().try_lock_owned().ok()?;
        Some(Turn { lane: self.clone(), connection })
    }

    /// Has the unanswered requests with this key undone, once each is answered.
    pub(super) fn undo_later(&self, key: &str, sql: &str) {
        self.unanswered.undo_later(key, sql);
    }
}

impl<D: Database> Turn<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    /// Sends a request, and returns the row of the answer.
    ///
    /// # Cancellation safety
    /// A task of its own sends it. If this future is dropped, the next turn still waits for the
    /// answer.
    pub(super) async fn fetch(self, request: Request<D>) -> Answer<D> {
        let (reply, answer) = oneshot::channel();
        tokio::spawn(self.carry_out(request, reply));
        answer.await.unwrap_or_else(|_| Err(silence()))
    }

    async fn carry_out(self, request: Request<D>, reply: oneshot::Sender<Answer<D>>) {
        let Self { lane, mut connection } = self;
        // 1. Connect, if that is needed.
        let connected = match connection.take() {
            Some(present) => Ok(present),
            None => timeout(request.answer_timeout * CONNECTING, request.options.connect())
                .await
                .unwrap_or_else(|_| Err(silence()))
                .map_err(not_connected),
        };
        let exchanged = match connected {
            Ok(present) if reply.is_closed() => {
                // Nobody waits for it, and nothing was sent.
                *connection = Some(present);
                return;
            }
            Ok(present) => {
                // 2. Send it, and wait for the answer.
                let mut exchange = pin!(lane.exchange(present, &request));
                match timeout(request.answer_timeout * SILENCE, exchange.as_mut()).await {
                    Ok(exchanged) => exchanged,
                    // 3. Let a new connection replace this one, unless it has replaced another.
                    Err(_) => {
                        match select(exchange, pin!(lane.replaced.clone().lock_owned())).await {
                            Either::Left((exchanged, _)) => exchanged,
                            Either::Right((_replaced, exchange)) => {
                                drop(connection);
                                let _ = timeout(LONGEST_SILENCE, exchange).await;
                                return;
                            }
                        }
                    }
                }
            }
            Err(error) => Err(error),
        };
        let row = exchanged.map(|(row, present)| {
            *connection = Some(present);
            row
        });
        drop(connection);
        // The caller may have given up.
        let _ = reply.send(row);
    }
}

impl<D: Database> Lane<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    /// Sends a request, and undoes it if that was asked for meanwhile. Returns the last row, and the
    /// connection.
    async fn exchange(
        &self,
        mut connection: D::Connection,
        request: &Request<D>,
    ) -> Result<(D::Row, D::Connection), sqlx::Error> {
        let mut unanswered = self.unanswered.begin(&request.key);
        let mut row = fetch_only::<D>(&mut connection, request.sql.clone()).await;
        while let Some(undo) = unanswered.undo_or_end() {
            if row.is_err() {
                // The connection may be lost, and the request carried out all the same.
                connection = request.options.connect().await?;
            }
            row = fetch_only::<D>(&mut connection, undo).await;
        }
        Ok((row?, connection))
    }
}

async fn fetch_only<D: Database>(connection: &mut D::Connection, sql: String) -> Answer<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    // All of the answer is read: the row comes before the outcome of the commit.
    let rows = raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await;
    rows?.pop().ok_or(sqlx::Error::RowNotFound)
}

/// Marks an error of encryption. Here it proves that nothing was sent. On a connection that was made,
/// the same error leaves the outcome unknown.
fn not_connected(error: sqlx::Error) -> sqlx::Error {
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
