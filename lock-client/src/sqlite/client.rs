//! Locks in SQLite, as a backend.

use std::{fmt, str::FromStr, time::Duration};

use fence::{Holder, ResourceName, Token};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};

use super::{
    failure::{failed, rejected},
    statements,
};
use crate::{
    backend::{
        Attempt, Backend, BackendError, BackendFuture, DEFAULT_ANSWER_TIMEOUT, HeldNames,
        Ownership, Status, Wakeups,
    },
    clock::{Moment, unix_millis},
    sql::{
        InvalidDatabaseUrl,
        answer::{self, Columns, InvalidAnswer},
        answer_timeout,
        lanes::Lanes,
        local_waiters::LocalWaiters,
        names, printable,
    },
    terms::Order,
    ttl::Ttl,
};

const EXAMPLE: &str = "sqlite:FILE";

/// Locks in SQLite.
#[derive(Clone)]
pub struct Sqlite {
    lanes: Lanes<sqlx::Sqlite>,
    waiters: LocalWaiters,
    address: String,
    label: String,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("address", &self.address)
            .field("answer_timeout", &self.lanes.answer_timeout())
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Makes a client of the file at a URL, such as `sqlite:///var/lib/locks.db`. It is opened when it
    /// is first used, and must exist. It is set to the journal mode WAL.
    ///
    /// # Errors
    /// [`InvalidDatabaseUrl`] if the URL can't be used, or names a database in memory.
    pub fn open(url: &str) -> Result<Self, InvalidDatabaseUrl> {
        if !url.starts_with("sqlite:") {
            return Err(InvalidDatabaseUrl::new("it does not begin with sqlite:", EXAMPLE));
        }
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|error| InvalidDatabaseUrl::unparsable(url, &error, EXAMPLE))?;
        if url.contains(":memory:") || url.contains("mode=memory") {
            return Err(InvalidDatabaseUrl::new(
                "a database in memory has no other clients",
                EXAMPLE,
            ));
        }
        let options =
            options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let address = format!("sqlite:{}", options.get_filename().display());
        let lanes = lanes(options, DEFAULT_ANSWER_TIMEOUT);
        Ok(Self { lanes, waiters: LocalWaiters::default(), address, label: String::new() })
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour
    /// at most. It suits a file that others lock for long.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let options = self.lanes.options().clone();
        Self { lanes: lanes(options, answer_timeout(timeout)), ..self }
    }

    /// Sets a label, such as a process id, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { label: printable(label), ..self }
    }

    async fn fetch(&self, sql: String) -> Result<SqliteRow, BackendError> {
        self.answered(self.lanes.fetch(sql).await)
    }

    fn answered(&self, answer: Result<SqliteRow, sqlx::Error>) -> Result<SqliteRow, BackendError> {
        answer.map_err(|error| failed(&self.address, &error))
    }

    fn read<T>(&self, answer: Result<T, InvalidAnswer>) -> Result<T, BackendError> {
        answer.map_err(|invalid| rejected(&self.address, &invalid.to_string()))
    }
}

/// A file that stays locked for four fifths of the answer time-out is an error that says so.
fn lanes(options: SqliteConnectOptions, answer_timeout: Duration) -> Lanes<sqlx::Sqlite> {
    Lanes::new(options.busy_timeout(answer_timeout * 4 / 5), answer_timeout)
}

impl Backend for Sqlite {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            let sql = statements::acquire(name, holder, ttl, order, unix_millis(), &self.label);
            let asked = Moment::now();
            let row = self.answered(self.lanes.fetch_try(holder, sql).await)?;
            self.read(answer::attempt(&row, holder, asked))
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        Ownership { holder, grant }: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let sql = statements::renew(name, holder, *grant, ttl);
            self.read(answer::token(&self.fetch(sql).await?, "token"))
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        Ownership { holder, grant }: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let sql = statements::reissue(name, holder, *grant, above);
            self.read(answer::token(&self.fetch(sql).await?, "token"))
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        _: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let release = statements::release(name, holder);
            let row = self.answered(self.lanes.fetch_release(holder, release).await)?;
            let first_waiter = self.read(row.text("first_waiter").map_err(Into::into))?;
            self.waiters.notify(name, first_waiter.as_deref());
            Ok(self.read(row.number("released").map_err(Into::into))? == Some(1))
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move { Ok(self.waiters.subscribe(name, holder, order)) })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(async move {
            let row = self.fetch(statements::status(name)).await?;
            self.read(answer::status(&row))
        })
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        let (client, prefix) = (self.clone(), prefix.to_owned());
        names::pages(move |after| {
            let (client, sql) = (client.clone(), statements::held_names(&prefix, &after));
            async move {
                let row = client.fetch(sql).await?;
                client.read(row.text("names").map_err(Into::into))
            }
        })
    }

    fn answer_timeout(&self) -> Duration {
        self.lanes.answer_timeout()
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}
