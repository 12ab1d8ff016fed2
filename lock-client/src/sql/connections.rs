//! The connections that a client's requests are sent over.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use fence::Holder;
use sqlx::{ConnectOptions, Database, Encode, Executor, Type};
use tokio::time::timeout;

use super::{
    connection::{Options, Request, SqlConnection, Turn, silence},
    statements::Statements,
};

/// The number of connections for tries and releases.
const CONNECTIONS_BY_HOLDER: usize = 4;
/// The number of connections for all other requests. The second one is made only if the first one is
/// busy.
const CONNECTIONS_APART: usize = 2;

/// A few connections.
///
/// The tries and the release of a holder take the same one, one after the other. So a release is
/// carried out after the tries that were sent before it. A try may wait for a row, so that other
/// requests, such as renewals, have connections apart.
pub(crate) struct SqlConnections<D: Database> {
    options: Options<D>,
    by_holder: Arc<[SqlConnection<D>; CONNECTIONS_BY_HOLDER]>,
    apart: Arc<[SqlConnection<D>; CONNECTIONS_APART]>,
    answer_timeout: Duration,
}

impl<D: Database> Clone for SqlConnections<D> {
    fn clone(&self) -> Self {
        Self {
            options: self.options.clone(),
            by_holder: self.by_holder.clone(),
            apart: self.apart.clone(),
            answer_timeout: self.answer_timeout,
        }
    }
}

impl<D: Database> SqlConnections<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
{
    pub(crate) fn new(options: Options<D>, answer_timeout: Duration) -> Self {
        // A logged statement would show whole holders.
        let options = options.disable_statement_logging();
        Self { options, by_holder: Arc::default(), apart: Arc::default(), answer_timeout }
    }

    pub(crate) fn options(&self) -> &Options<D> {
        &self.options
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Sends statements as one message, and returns the only row of the answer.
    pub(crate) async fn fetch(
        &self,
        statements: impl Into<Statements>,
    ) -> Result<D::Row, sqlx::Error> {
        let turn = async {
            match self.apart.iter().find_map(SqlConnection::idle_turn) {
                Some(turn) => turn,
                None => self.apart[fastrand::usize(..CONNECTIONS_APART)].turn().await,
            }
        };
        self.send(turn, None, statements.into()).await
    }

    /// Does the same for the try of a holder. Its requests are sent one after the other.
    pub(crate) async fn fetch_try(
        &self,
        holder: &Holder,
        statements: Statements,
    ) -> Result<D::Row, sqlx::Error> {
        self.send(self.connection(holder).turn(), Some(holder), statements).await
    }

    /// Does the same for the release of a holder. If a try of the holder is still unanswered, the
    /// release follows it, even if the caller gives up.
    pub(crate) async fn fetch_release(
        &self,
        holder: &Holder,
        statements: Statements,
    ) -> Result<D::Row, sqlx::Error> {
        self.connection(holder).undo_later(holder.as_str(), &statements);
        self.fetch_try(holder, statements).await
    }

    fn connection(&self, holder: &Holder) -> &SqlConnection<D> {
        let mut hasher = DefaultHasher::new();
        holder.as_str().hash(&mut hasher);
        &self.by_holder[hasher.finish() as usize % CONNECTIONS_BY_HOLDER]
    }

    async fn send(
        &self,
        turn: impl Future<Output = Turn<D>>,
        holder: Option<&Holder>,
        statements: Statements,
    ) -> Result<D::Row, sqlx::Error> {
        let (options, answer_timeout) = (self.options.clone(), self.answer_timeout);
        let key = holder.map(|holder| holder.as_str().to_owned());
        let request = Request { options, answer_timeout, key, statements };
        let answer = async { turn.await.fetch(request).await };
        timeout(answer_timeout, answer).await.unwrap_or_else(|_| Err(silence()))
    }
}
