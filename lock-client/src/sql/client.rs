//! What the clients of the databases share. Each makes its own statements.

use std::{fmt, time::Duration};

use fence::{Holder, Token};
use sqlx::{Database, Encode, Executor, Type};

use super::{
    answer::{self, Columns, InvalidAnswer},
    connection::Options,
    connections::SqlConnections,
    statements::Statements,
};
use crate::{
    backend::{Attempt, BackendError, DEFAULT_ANSWER_TIMEOUT, Status},
    clock::Moment,
    label::printable,
};

/// A client of a database with locks.
pub(crate) struct Client<D: Database> {
    connections: SqlConnections<D>,
    address: String,
    label: String,
    /// Converts an error of the database at this address.
    failed: fn(&str, &sqlx::Error) -> BackendError,
}

impl<D: Database> Clone for Client<D> {
    fn clone(&self) -> Self {
        Self {
            connections: self.connections.clone(),
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
        options: Options<D>,
        address: String,
        failed: fn(&str, &sqlx::Error) -> BackendError,
    ) -> Self {
        let connections = SqlConnections::new(options, DEFAULT_ANSWER_TIMEOUT);
        Self { connections, address, label: String::new(), failed }
    }

    /// Replaces the connections by new ones, with these options.
    pub(crate) fn reconnected(self, options: Options<D>, answer_timeout: Duration) -> Self {
        Self { connections: SqlConnections::new(options, answer_timeout), ..self }
    }

    /// Sets a label without control characters, of 200 characters at most.
    pub(crate) fn labelled(self, label: &str) -> Self {
        Self { label: printable(label), ..self }
    }

    pub(crate) fn connections(&self) -> &SqlConnections<D> {
        &self.connections
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.connections.answer_timeout()
    }

    /// Sends the try of a holder.
    pub(crate) async fn attempt(
        &self,
        holder: &Holder,
        statements: impl Into<Statements>,
    ) -> Result<Attempt, BackendError> {
        let asked = Moment::now();
        let row = self.answered(self.connections.fetch_try(holder, statements.into()).await)?;
        self.read_after_a_change(answer::attempt(&row, holder, asked))
    }

    /// Sends a renewal or a reissue, and returns the token; `None` if the lock has another owner.
    pub(crate) async fn token(
        &self,
        statements: impl Into<Statements>,
    ) -> Result<Option<Token>, BackendError> {
        let row = self.answered(self.connections.fetch(statements).await)?;
        self.read_after_a_change(answer::token(&row, "token"))
    }

    /// Sends the release of a holder, and returns the answer.
    pub(crate) async fn release(
        &self,
        holder: &Holder,
        statements: impl Into<Statements>,
    ) -> Result<D::Row, BackendError> {
        self.answered(self.connections.fetch_release(holder, statements.into()).await)
    }

    /// Asks for the state of a lock.
    pub(crate) async fn status(
        &self,
        statements: impl Into<Statements>,
    ) -> Result<Status, BackendError> {
        let row = self.answered(self.connections.fetch(statements).await)?;
        self.read(answer::status(&row))
    }

    /// Asks for a page of names, each on a line of its own; `None` if there is none.
    pub(crate) async fn names(
        &self,
        statements: impl Into<Statements>,
    ) -> Result<Option<String>, BackendError> {
        let row = self.answered(self.connections.fetch(statements).await)?;
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
