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

/// The number of connections. Each has one request under way at a time.
const LANES: usize = 4;
/// How long a request may take until its connection is replaced, in answer time-outs. It is longer
/// than a single try and its undoing: the release that undoes a try then follows it over the same
/// connection. After a longer silence, an old try may be carried out last, and that lock is free after
/// its ttl.
const LONGEST_SILENCE: u32 = 10;

/// The options of a connection.
pub(crate) type Options<D> = <<D as Database>::Connection as Connection>::Options;
type Lane<D> = Arc<Mutex<Option<<D as Database>::Connection>>>;

/// A few connections, which are made when they are first needed, and again after an error.
///
/// All requests of a holder take the same connection, one after the other. So a release is carried
/// out after the attempts that were sent before it.
pub(crate) struct Lanes<D: Database> {
    options: Options<D>,
    lanes: Arc<[Lane<D>; LANES]>,
    answer_timeout: Duration,
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

    async fn send(&self, key: &str, sql: String) -> Result<D::Row, sqlx::Error> {
        // 1. Wait for the connection. Requests get it in the order of their calls.
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let lane = hasher.finish() as usize % LANES;
        let mut lane = self.lanes[lane].clone().lock_owned().await;
        // 2. Go on in a task of its own. If the caller gives up, the next request over this connection
        // still waits for the answer to this one.
        let (reply, answer) = oneshot::channel();
        let (options, longest) = (self.options.clone(), self.answer_timeout * LONGEST_SILENCE);
        tokio::spawn(async move {
            let exchange = async {
                let mut connection = match lane.take() {
                    Some(connection) => connection,
                    None => options.connect().await?,
                };
                if reply.is_closed() {
                    // Nobody waits for it, and nothing was sent.
                    *lane = Some(connection);
                    return Err(silence());
                }
                // All of the answer is read: the row comes before the outcome of the commit.
                let rows = raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await;
                if rows.is_ok() {
                    *lane = Some(connection);
                }
                rows?.pop().ok_or(sqlx::Error::RowNotFound)
            };
            let row = timeout(longest, exchange).await.unwrap_or_else(|_| Err(silence()));
            drop(lane);
            // The caller may have given up.
            let _ = reply.send(row);
        });
        answer.await.unwrap_or_else(|_| Err(silence()))
    }
}

fn silence() -> sqlx::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}
