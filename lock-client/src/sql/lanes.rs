//! The connections that a client's requests are sent over.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use sqlx::{ConnectOptions, Database, Executor};
use tokio::time::timeout;

use super::lane::{Lane, Options, Request, Turn, silence};

/// The number of connections for tries and releases.
const LANES: usize = 4;

/// A few connections.
///
/// The tries and the release of a holder take the same one, one after the other. So a release is
/// carried out after the tries that were sent before it.
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
    /// same key, such as a holder, are sent one after the other.
    pub(crate) async fn fetch(&self, key: &str, sql: String) -> Result<D::Row, sqlx::Error> {
        self.send(self.lane(key).turn(), key, sql).await
    }

    /// Does the same for statements that undo the earlier requests with this key. If one of these is
    /// still unanswered, the statements follow it, even if the caller gives up.
    pub(crate) async fn undo(&self, key: &str, sql: String) -> Result<D::Row, sqlx::Error> {
        self.lane(key).undo_later(key, &sql);
        self.fetch(key, sql).await
    }

    fn lane(&self, key: &str) -> &Lane<D> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.lanes[hasher.finish() as usize % LANES]
    }

    async fn send(
        &self,
        turn: impl Future<Output = Turn<D>>,
        key: &str,
        sql: String,
    ) -> Result<D::Row, sqlx::Error> {
        let (options, answer_timeout) = (self.options.clone(), self.answer_timeout);
        let request = Request { options, answer_timeout, key: key.to_owned(), sql };
        let answer = async { turn.await.fetch(request).await };
        timeout(answer_timeout, answer).await.unwrap_or_else(|_| Err(silence()))
    }
}
