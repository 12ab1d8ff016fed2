//! What the clients of the databases share. Each makes its own statements.

use std::{fmt, time::Duration};

use fence::{Holder, Token};
use sqlx::{Database, Encode, Executor, Type};

use super::{
    answer::{self, Columns, InvalidAnswer},
    line::Statements,
    pool::{Connect, Pool},
};
use crate::{
    backend::{Attempt, BackendError, DEFAULT_ANSWER_TIMEOUT, Status},
    clock::Moment,
    label::printable,
    ttl::Ttl,
};

/// A client of a database with locks.
pub(crate) struct Client<D: Database> {
    pool: Pool<D>,
    address: String,
    label: String,
    /// Converts an error of the database at this address.
    failed: fn(&str, &sqlx::Error) -> BackendError,
}

impl<D: Database> Clone for Client<D> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            address: self.address.clone(),
            label: self.label.clone(),
            failed: self.failed,
        }
    }
}

impl<D: Database> Client<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
    D::Row: Columns,
{
    pub(crate) fn new(
        connect: Connect<D>,
        address: String,
        failed: fn(&str, &sqlx::Error) -> BackendError,
    ) -> Self {
        let pool = Pool::new(connect, DEFAULT_ANSWER_TIMEOUT);
        Self { pool, address, label: String::new(), failed }
    }

    /// Replaces the connections by new ones, which are made in this way.
    pub(crate) fn reconnected(self, connect: Connect<D>, answer_timeout: Duration) -> Self {
        Self { pool: Pool::new(connect, answer_timeout), ..self }
    }

    /// Sets a label without control characters, of 200 characters at most.
    pub(crate) fn labelled(self, label: &str) -> Self {
        Self { label: printable(label), ..self }
    }

    pub(crate) fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.pool.answer_timeout()
    }

    /// Sends the try of a holder.
    pub(crate) async fn attempt(
        &self,
        holder: &Holder,
        ttl: Ttl,
        statements: impl Into<Statements>,
    ) -> Result<Attempt, BackendError> {
        let asked = Moment::now();
        let row = self.answered(self.pool.fetch_try(holder, ttl, statements.into()).await)?;
        self.read_after_a_change(answer::attempt(&row, holder, asked))
    }

    /// Sends a renewal or a reissue, and returns the token; `None` if the lock has another owner.
    pub(crate) async fn token(
        &self,
        holder: &Holder,
        renewed: Option<Ttl>,
        statements: impl Into<Statements>,
    ) -> Result<Option<Token>, BackendError> {
        let row = self.answered(self.pool.fetch_held(statements.into()).await)?;
        let token = self.read_after_a_change(answer::token(&row, "token"))?;
        match (token, renewed) {
            (Some(_), Some(ttl)) => self.pool.hold(holder, ttl),
            (Some(_), None) => {}
            (None, _) => self.pool.let_go(holder),
        }
        Ok(token)
    }

    /// Sends the release of a holder, and returns the answer. A holder without a token may have tries that
    /// are not answered.
    pub(crate) async fn release(
        &self,
        holder: &Holder,
        token: Option<Token>,
        statements: impl Into<Statements>,
    ) -> Result<D::Row, BackendError> {
        let released = self.pool.fetch_release(holder, token.is_none(), statements.into());
        self.answered(released.await)
    }

    /// Asks for the state of a lock.
    pub(crate) async fn status(
        &self,
        statements: impl Into<Statements>,
    ) -> Result<Status, BackendError> {
        let row = self.answered(self.pool.fetch(statements.into()).await)?;
        self.read(answer::status(&row))
    }

    /// Asks for a page of names, each on a line of its own; `None` if there is none.
    pub(crate) async fn names(
        &self,
        statements: impl Into<Statements>,
    ) -> Result<Option<String>, BackendError> {
        let row = self.answered(self.pool.fetch(statements.into()).await)?;
        self.read(row.text("names").map_err(Into::into))
    }

    /// Reads an answer to statements that may have changed something. If this crate's SQL never makes
    /// such an answer, the outcome is unknown.
    pub(crate) fn read_after_a_change<T>(
        &self,
        answer: Result<T, InvalidAnswer>,
    ) -> Result<T, BackendError> {
        self.read(answer).map_err(BackendError::after_a_change)
    }

    /// Reports an answer that this crate's SQL never makes.
    fn read<T>(&self, answer: Result<T, InvalidAnswer>) -> Result<T, BackendError> {
        answer.map_err(|invalid| {
            BackendError::Rejected(format!("{}: {invalid}", self.address).into())
        })
    }

    /// Writes the client under the name of its type.
    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("address", &self.address)
            .field("answer_timeout", &self.answer_timeout())
            .field("label", &self.label)
            .finish_non_exhaustive()
    }

    fn answered(&self, answer: Result<D::Row, sqlx::Error>) -> Result<D::Row, BackendError> {
        answer.map_err(|error| (self.failed)(&self.address, &error))
    }
}
