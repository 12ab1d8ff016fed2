//! Locks in SQLite, as a backend.

use std::{str::FromStr, sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use sqlx::{
    ConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous},
};

use super::statements::statements;
use crate::{
    InvalidUrl,
    backend::{DEFAULT_ANSWER_TIMEOUT, Wakeups, answer_timeout, debug_by_address},
    sql::{
        UNUSABLE,
        answer::InvalidAnswer,
        backend::{Client, Explained, Request, SqlBackend},
        line::{Connected, Statements},
        polling,
        pool::Connect,
        unparsable,
        url::KnownSettings,
    },
    terms::Order,
    waiters::Waiters,
};

const EXAMPLE: &str = "sqlite:FILE";
const SETTINGS: KnownSettings =
    KnownSettings { applied: "mode cache immutable vfs", without_effect: "psow" };

/// Locks in SQLite.
#[derive(Clone)]
pub struct Sqlite {
    client: Client<sqlx::Sqlite>,
    waiters: Waiters,
    options: SqliteConnectOptions,
}

debug_by_address!(Sqlite);

impl Sqlite {
    /// Makes a client of the file at a URL, such as `sqlite:/var/lib/locks.db`. It is opened when it
    /// is first used, and must exist. It is set to the journal mode WAL.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used, or names a database in memory.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        Self::parse(url).map_err(|invalid| invalid.within(UNUSABLE, EXAMPLE))
    }

    fn parse(url: &str) -> Result<Self, InvalidUrl> {
        if !url.starts_with("sqlite:") {
            return Err(InvalidUrl::new("it does not begin with sqlite:"));
        }
        let url = &SETTINGS.without_ineffective(url);
        SETTINGS.check(url)?;
        let options =
            SqliteConnectOptions::from_str(url).map_err(|error| unparsable(url, &error))?;
        if url.contains(":memory:") || url.contains("mode=memory") {
            return Err(InvalidUrl::new("a database in memory has no other clients"));
        }
        if options.get_filename().as_os_str().is_empty() {
            return Err(InvalidUrl::new("the file is missing"));
        }
        let options =
            options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let address = format!("sqlite:{}", options.get_filename().display());
        let connect = connection(&patient(&options, DEFAULT_ANSWER_TIMEOUT));
        let client = Client::new(connect, address, explain);
        Ok(Self { client, options, waiters: Waiters::default() })
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
        Box::pin(async move { options.connect().await.map(Connected::new) })
    })
}

/// A file that stays locked for four fifths of the answer time-out is an error that says so.
fn patient(options: &SqliteConnectOptions, answer_timeout: Duration) -> SqliteConnectOptions {
    options.clone().busy_timeout(answer_timeout * 4 / 5)
}

impl SqlBackend for Sqlite {
    type Database = sqlx::Sqlite;

    fn client(&self) -> &Client<sqlx::Sqlite> {
        &self.client
    }

    fn statements(&self, request: Request<'_>) -> Statements {
        statements(request, &self.client.label)
    }

    fn released(&self, name: &ResourceName, row: &SqliteRow) -> Result<bool, InvalidAnswer> {
        polling::released::<sqlx::Sqlite>(&self.waiters, name, row)
    }

    async fn subscribe(&self, name: &ResourceName, holder: &Holder, order: Order) -> Wakeups {
        polling::subscribe(&self.waiters, name, holder, order, || true)
    }
}

fn explain(error: &sqlx::Error) -> Explained {
    let (code, message) = match error.as_database_error() {
        Some(error) => (error.code().unwrap_or_default(), error.message()),
        None => Default::default(),
    };
    // The lower byte is the kind, and the others make it more precise.
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(1) if message.starts_with("no such table") => Explained::Rejected(format!(
            "the tables of the locks are missing: apply migrations/sqlite/lock ({error})"
        )),
        Ok(14) => Explained::Rejected(format!(
            "the file can't be opened; to make one, apply migrations/sqlite/lock ({error})"
        )),
        // It is read-only, or is no database; or a token would be above the highest.
        Ok(8 | 19 | 26) => Explained::Rejected(error.to_string()),
        Ok(5 | 6) => {
            Explained::Unavailable(format!("another process keeps the file locked ({error})"))
        }
        _ => Explained::Unavailable(error.to_string()),
    }
}
