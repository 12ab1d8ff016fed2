//! The connections that a client's requests are sent over.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    sync::Arc,
    time::Duration,
};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Database, Executor, raw_sql};
use tokio::{
    sync::{Mutex, oneshot},
    time::timeout,
};

use super::unanswered::Unanswered;

/// The number of connections. Each has one request under way at a time.
const LANES: usize = 4;
/// How long a request may take until its connection is replaced, in answer time-outs. After a longer
/// silence, an old try may be carried out last, and that lock is free after its ttl.
const LONGEST_SILENCE: u32 = 10;

/// The options of a connection.
pub(crate) type Options<D> = <<D as Database>::Connection as Connection>::Options;

/// A few connections, which are made when they are first needed, and again after an error.
///
/// All requests of a holder take the same connection, one after the other. So a release is carried
/// out after the attempts that were sent before it.
pub(crate) struct Lanes<D: Database> {
    options: Options<D>,
    lanes: Arc<[Lane<D>; LANES]>,
    answer_timeout: Duration,
}

struct Lane<D: Database> {
    connection: Arc<Mutex<Option<D::Connection>>>,
    unanswered: Unanswered,
}

impl<D: Database> Clone for Lanes<D> {
    fn clone(&self) -> Self {
        Self {
            options: self.options.clone(),
            lanes: self.lanes.clone(),
            answer_timeout: self.answer_timeout,
        }
    }
}

impl<D: Database> Clone for Lane<D> {
    fn clone(&self) -> Self {
        Self { connection: self.connection.clone(), unanswered: self.unanswered.clone() }
    }
}

impl<D: Database> Default for Lane<D> {
    fn default() -> Self {
        Self { connection: Arc::default(), unanswered: Unanswered::default() }
    }
}

impl<D: Database> Lanes<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    pub(crate) fn new(options: Options<D>, answer_timeout: Duration) -> Self {
        // A logged statement would show whole holders.
        let options = options.disable_statement_logging();
        Self { options, lanes: Arc::default(), answer_timeout }
    }

    pub(crate) fn options(&self) -> &Options<D> {
        &self.options
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Sends statements as one message, and returns the only row of the answer. Requests with the
    /// same key, such as a holder, are carried out one after the other.
    pub(crate) async fn fetch(&self, key: &str, sql: String) -> Result<D::Row, sqlx::Error> {
        timeout(self.answer_timeout, self.send(key, sql)).await.unwrap_or_else(|_| Err(silence()))
    }

    /// Does the same for statements that undo the earlier requests with this key. If one of these is
    /// still unanswered, the statements follow it, even if the caller gives up.
    pub(crate) async fn undo(&self, key: &str, sql: String) -> Result<D::Row, sqlx::Error> {
        self.lane(key).unanswered.undo_later(key, &sql);
        self.fetch(key, sql).await
    }

    fn lane(&self, key: &str) -> &Lane<D> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.lanes[hasher.finish() as usize % LANES]
    }

    async fn send(&self, key: &str, sql: String) -> Result<D::Row, sqlx::Error> {
        // 1. Wait for the connection. Requests get it in the order of their calls.
        let Lane { connection, unanswered } = self.lane(key).clone();
        let mut connection = connection.lock_owned().await;
        // 2. Go on in a task of its own. If the caller gives up, the next request over this connection
        // still waits for the answer to this one.
        let (reply, answer) = oneshot::channel();
        let (options, longest) = (self.options.clone(), self.answer_timeout * LONGEST_SILENCE);
        let key = key.to_owned();
        tokio::spawn(async move {
            let exchange = async {
                let mut present = match connection.take() {
                    Some(present) => present,
                    None => options.connect().await?,
                };
                if reply.is_closed() {
                    // Nobody waits for it, and nothing was sent.
                    *connection = Some(present);
                    return Err(silence());
                }
                let mut request = unanswered.begin(&key);
                let mut row = fetch_only::<D>(&mut present, sql).await;
                // 3. Undo what nobody waited for. If the connection was lost, the request may have
                // been carried out, too.
                while let Some(undo) = request.undo_or_end() {
                    if row.is_err() {
                        present = options.connect().await?;
                    }
                    row = fetch_only::<D>(&mut present, undo).await;
                }
                if row.is_ok() {
                    *connection = Some(present);
                }
                row
            };
            let row = timeout(longest, exchange).await.unwrap_or_else(|_| Err(silence()));
            drop(connection);
            // The caller may have given up.
            let _ = reply.send(row);
        });
        answer.await.unwrap_or_else(|_| Err(silence()))
    }
}

async fn fetch_only<D: Database>(
    connection: &mut D::Connection,
    sql: String,
) -> Result<D::Row, sqlx::Error>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    // All of the answer is read: the row comes before the outcome of the commit.
    let rows = raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await;
    rows?.pop().ok_or(sqlx::Error::RowNotFound)
}

fn silence() -> sqlx::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}
