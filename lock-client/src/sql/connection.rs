//! One connection, over which one request is under way at a time.

use std::{io, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};
use sqlx::{
    Arguments, AssertSqlSafe, ConnectOptions, Connection, Database, Encode, Executor, SqlSafeStr,
    Type,
};
use tokio::{
    sync::{Mutex, OwnedMutexGuard, oneshot},
    time::{sleep, timeout},
};

use super::{
    statements::Statements,
    unanswered::{self, Unanswered},
};
use crate::retry::pauses;

/// How long connecting may take, in answer time-outs.
const CONNECTING: u32 = 10;
/// How long an answer may take until the connection is replaced, in answer time-outs. It is shorter
/// than the patience of a single try.
const SILENCE: u32 = 2;
/// How long a connection that was replaced is kept. Its answer is still awaited, because the request
/// may have to be undone. Besides, a server whose commits are stuck keeps the session of a closed
/// connection: it would run out of sessions.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// How often an undo that fails is repeated. The pauses add up to some 20 seconds.
const UNDO_RETRIES: usize = 25;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The options of a connection.
pub(crate) type Options<D> = <<D as Database>::Connection as Connection>::Options;
type Present<D> = Option<<D as Database>::Connection>;

/// A connection, which is made when it is first needed, and again after an error. If it is silent, a
/// second one replaces it. If both are silent, requests wait for one of them.
pub(super) struct SqlConnection<D: Database> {
    present: Arc<Mutex<Present<D>>>,
    /// Locked by the connection that was replaced.
    replaced: Arc<Mutex<()>>,
    unanswered: Unanswered,
}

/// The right to send the next request over a connection.
pub(super) struct Turn<D: Database> {
    connection: SqlConnection<D>,
    present: OwnedMutexGuard<Present<D>>,
}

/// One message, and how long to wait for its answer.
pub(super) struct Request<D: Database> {
    pub(super) options: Options<D>,
    pub(super) answer_timeout: Duration,
    /// The holder whose requests are carried out in their order.
    pub(super) key: Option<String>,
    pub(super) statements: Statements,
}

type Answer<D> = Result<<D as Database>::Row, sqlx::Error>;

impl<D: Database> Clone for SqlConnection<D> {
    fn clone(&self) -> Self {
        Self {
            present: self.present.clone(),
            replaced: self.replaced.clone(),
            unanswered: self.unanswered.clone(),
        }
    }
}

impl<D: Database> Default for SqlConnection<D> {
    fn default() -> Self {
        Self {
            present: Arc::default(),
            replaced: Arc::default(),
            unanswered: Unanswered::default(),
        }
    }
}

impl<D: Database> SqlConnection<D> {
    /// Waits until no other request is under way. Turns are taken in the order of the calls.
    pub(super) async fn turn(&self) -> Turn<D> {
        Turn { connection: self.clone(), present: self.present.clone().lock_owned().await }
    }

    /// Returns a turn if no other request is under way.
    pub(super) fn idle_turn(&self) -> Option<Turn<D>> {
        let present = self.present.clone().try_lock_owned().ok()?;
        Some(Turn { connection: self.clone(), present })
    }

    /// Has the unanswered requests with this key undone, once each is answered.
    pub(super) fn undo_later(&self, key: &str, undo: &Statements) {
        self.unanswered.undo_later(key, undo);
    }
}

impl<D: Database> Turn<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
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
        let Self { connection, mut present } = self;
        // 1. Connect, if that is needed.
        let connected = match present.take() {
            Some(open) => Ok(open),
            None => timeout(request.answer_timeout * CONNECTING, request.options.connect())
                .await
                .unwrap_or_else(|_| Err(silence()))
                .map_err(not_connected),
        };
        let open = match connected {
            Ok(open) => open,
            Err(error) => {
                drop(present);
                // The caller may have given up.
                let _ = reply.send(Err(error));
                return;
            }
        };
        // A caller that gives up from here on finds the request to be undone.
        let unanswered = connection.unanswered.begin(request.key.as_deref());
        if reply.is_closed() {
            // Nobody waits for it, and nothing was sent.
            *present = Some(open);
            return;
        }
        // 2. Send it, and wait for the answer.
        let mut exchange = pin!(exchange::<D>(open, &request, unanswered, reply));
        let exchanged = match timeout(request.answer_timeout * SILENCE, exchange.as_mut()).await {
            Ok(exchanged) => exchanged,
            // 3. Let a new connection replace this one, unless it has replaced another.
            Err(_) => {
                match select(exchange, pin!(connection.replaced.clone().lock_owned())).await {
                    Either::Left((exchanged, _)) => exchanged,
                    Either::Right((_replaced, exchange)) => {
                        drop(present);
                        let _ = timeout(LONGEST_SILENCE, exchange).await;
                        return;
                    }
                }
            }
        };
        let Exchanged { present: still_open, reply } = exchanged;
        *present = still_open;
        drop(present);
        if let Some((reply, answer)) = reply {
            let _ = reply.send(answer);
        }
    }
}

/// A request that was sent, and undone if that was asked for.
struct Exchanged<D: Database> {
    /// The connection, unless it failed.
    present: Present<D>,
    /// The answer, unless the caller has it already.
    reply: Option<(oneshot::Sender<Answer<D>>, Answer<D>)>,
}

/// Sends a request, and undoes it if that was asked for meanwhile.
async fn exchange<D: Database>(
    mut connection: D::Connection,
    request: &Request<D>,
    mut unanswered: unanswered::Request,
    reply: oneshot::Sender<Answer<D>>,
) -> Exchanged<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
{
    let answer = fetch_only::<D>(&mut connection, request.statements.clone()).await;
    let mut present = answer.is_ok().then_some(connection);
    let is_lost = answer.as_ref().is_err_and(is_lost);
    let mut reply = Some((reply, answer));
    if is_lost && request.key.is_some() {
        // The server may not notice the loss, and carry out the request until its own time-out. What
        // follows must not overtake that, but the caller learns of the loss now.
        if let Some((reply, answer)) = reply.take() {
            let _ = reply.send(answer);
        }
        sleep(request.answer_timeout).await;
    }
    let mut pauses = pauses(LONGEST_PAUSE).take(UNDO_RETRIES);
    while let Some(undo) = unanswered.undo_or_end() {
        present = undone(present, request, undo.clone()).await.ok();
        if let Some((_, answer)) = &mut reply {
            // A grant that was undone is none.
            *answer = Err(silence());
        }
        if present.is_none() {
            let Some(pause) = pauses.next() else { break };
            unanswered.undo_again(undo);
            sleep(pause).await;
        }
    }
    Exchanged { present, reply }
}

/// Sends what undoes a request, over a new connection if there is none.
async fn undone<D: Database>(
    present: Present<D>,
    request: &Request<D>,
    undo: Statements,
) -> Result<D::Connection, sqlx::Error>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
{
    let mut connection = match present {
        Some(present) => present,
        None => request.options.connect().await?,
    };
    fetch_only::<D>(&mut connection, undo).await?;
    Ok(connection)
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
fn is_lost(error: &sqlx::Error) -> bool {
    !matches!(error, sqlx::Error::Database(_) | sqlx::Error::RowNotFound)
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
