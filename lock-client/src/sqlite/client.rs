//! Locks in SQLite, as a backend.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use fence::{Holder, ResourceName, Token};
use sqlx::{
    ConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::{failure::failed, statements};
use crate::{
    backend::{
        Attempt, Backend, BackendFuture, DEFAULT_ANSWER_TIMEOUT, HeldNames, Ownership, Status,
        Wakeups,
    },
    clock::unix_millis,
    sql::{
        InvalidDatabaseUrl, answer::Columns, answer_timeout, client::Client,
        local_waiters::LocalWaiters, names, pool::Connect, url::KnownSettings,
    },
    terms::Order,
    ttl::Ttl,
};

const EXAMPLE: &str = "sqlite:FILE";
const SETTINGS: KnownSettings = KnownSettings {
    applied: &["mode", "cache", "immutable", "vfs"],
    without_effect: &["psow"],
    example: EXAMPLE,
};

/// Locks in SQLite.
#[derive(Clone)]
pub struct Sqlite {
    client: Client<sqlx::Sqlite>,
    waiters: LocalWaiters,
    options: SqliteConnectOptions,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.debug("Sqlite", f)
    }
}

impl Sqlite {
    /// Makes a client of the file at a URL, such as `sqlite:/var/lib/locks.db`. It is opened when it
    /// is first used, and must exist. It is set to the journal mode WAL.
    ///
    /// # Errors
    /// [`InvalidDatabaseUrl`] if the URL can't be used, or names a database in memory.
    pub fn open(url: &str) -> Result<Self, InvalidDatabaseUrl> {
        if !url.starts_with("sqlite:") {
            return Err(InvalidDatabaseUrl::new("it does not begin with sqlite:", EXAMPLE));
        }
        let url = &SETTINGS.without_ineffective(url);
        SETTINGS.check(url)?;
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|error| InvalidDatabaseUrl::unparsable(url, &error, EXAMPLE))?;
        if url.contains(":memory:") || url.contains("mode=memory") {
            return Err(InvalidDatabaseUrl::new(
                "a database in memory has no other clients",
                EXAMPLE,
            ));
        }
        if options.get_filename().as_os_str().is_empty() {
            return Err(InvalidDatabaseUrl::new("the file is missing", EXAMPLE));
        }
        let options =
            options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let address = format!("sqlite:{}", options.get_filename().display());
        let connect = connection(&patient(&options, DEFAULT_ANSWER_TIMEOUT));
        let client = Client::new(connect, address, failed);
        Ok(Self { client, options, waiters: LocalWaiters::default() })
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour
    /// at most. It suits a file that others lock for long.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let timeout = answer_timeout(timeout);
        let connect = connection(&patient(&self.options, timeout));
        Self { client: self.client.reconnected(connect, timeout), ..self }
    }

    /// Sets a label, such as a process id, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { client: self.client.labelled(label), ..self }
    }
}

/// Makes connections with these options. A logged statement would show whole holders.
fn connection(options: &SqliteConnectOptions) -> Connect<sqlx::Sqlite> {
    let options = options.clone().disable_statement_logging();
    Arc::new(move || {
        let options = options.clone();
        Box::pin(async move { options.connect().await })
    })
}

/// A file that stays locked for four fifths of the answer time-out is an error that says so.
fn patient(options: &SqliteConnectOptions, answer_timeout: Duration) -> SqliteConnectOptions {
    options.clone().busy_timeout(answer_timeout * 4 / 5)
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
            let (since_ms, label) = (unix_millis(), self.client.label());
            let sql = statements::acquire(name, holder, ttl, order, since_ms, label);
            self.client.attempt(holder, ttl, sql).await
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        Ownership { holder, grant }: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            self.client.token(holder, Some(ttl), statements::renew(name, holder, *grant, ttl)).await
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        Ownership { holder, grant }: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            self.client.token(holder, None, statements::reissue(name, holder, *grant, above)).await
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let release = statements::release(name, holder);
            let row = self.client.release(holder, token, release).await?;
            let first_waiter =
                self.client.read_after_a_change(row.text("first_waiter").map_err(Into::into))?;
            self.waiters.notify(name, first_waiter.as_deref());
            Ok(self.client.read_after_a_change(row.number("released").map_err(Into::into))?
                == Some(1))
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
        Box::pin(async move { self.client.status(statements::status(name)).await })
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        let (client, prefix) = (self.client.clone(), prefix.to_owned());
        names::pages(move |after| {
            let (client, sql) = (client.clone(), statements::held_names(&prefix, &after));
            async move { client.names(sql).await }
        })
    }

    fn answer_timeout(&self) -> Duration {
        self.client.answer_timeout()
    }

    fn address(&self) -> String {
        self.client.address().to_owned()
    }
}
