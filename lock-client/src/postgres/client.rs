//! Locks in PostgreSQL, as a backend.

use std::time::Duration;

use fence::{Holder, ResourceName};
use sqlx::{Row, postgres::PgRow};

use super::{notifications::Notifications, primary::Primary};
use crate::{
    InvalidUrl,
    backend::{DEFAULT_ANSWER_TIMEOUT, Wakeups, answer_timeout, debug_by_address},
    sql::{
        UNUSABLE,
        answer::InvalidAnswer,
        backend::{Client, Explained, Request, SqlBackend},
        hex,
        line::Statements,
    },
    terms::Order,
};

const EXAMPLE: &str = "postgres://USER:PASSWORD@HOST/DATABASE";

/// Locks in PostgreSQL.
#[derive(Clone)]
pub struct Postgres {
    client: Client<sqlx::Postgres>,
    notifications: Notifications,
    primary: Primary,
}

debug_by_address!(Postgres);

impl Postgres {
    /// Makes a client of the database at a URL, such as
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full`. It connects when it is first
    /// used.
    ///
    /// It may name several hosts, of which the primary is used:
    /// `postgres://USER:PASSWORD@HOST,HOST/DATABASE?target_session_attrs=read-write`. One that was replaced
    /// by a newer primary is not used again.
    ///
    /// What the URL leaves out comes from the environment (`PGPASSWORD` and so on). For a Unix socket,
    /// its folder is given as `?host=FOLDER`. With TLS, the server's certificate must be signed by one
    /// that the system trusts, or by the one in `?sslrootcert=FILE`. A setting that isn't known is
    /// rejected. One of libpq that changes neither the server nor what is verified, such as
    /// `connect_timeout`, is logged and has no effect.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        Self::parse(url).map_err(|invalid| invalid.within(UNUSABLE, EXAMPLE))
    }

    fn parse(url: &str) -> Result<Self, InvalidUrl> {
        crate::tls::choose_provider();
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(InvalidUrl::new("it does not begin with postgres://"));
        }
        let primary = Primary::parse(url)?;
        let connect = primary.connect(DEFAULT_ANSWER_TIMEOUT);
        Ok(Self::new(Client::new(connect, primary.address(), explain), primary))
    }

    fn new(client: Client<sqlx::Postgres>, primary: Primary) -> Self {
        let notifications = Notifications::new(client.pool.clone(), primary.clone());
        Self { client, notifications, primary }
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour
    /// at most. It suits a database that is far away. A lease whose ttl is not several times longer is
    /// lost with one lost reply.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let (Self { client, primary, .. }, timeout) = (self, answer_timeout(timeout));
        Self::new(client.reconnected(primary.connect(timeout), timeout), primary)
    }

    /// Sets a label, such as a host's name, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { client: self.client.labelled(label), ..self }
    }
}

impl SqlBackend for Postgres {
    type Database = sqlx::Postgres;

    fn client(&self) -> &Client<sqlx::Postgres> {
        &self.client
    }

    /// Calls a function, in one message that is a transaction.
    fn statements(&self, request: Request<'_>) -> Statements {
        let timeout_ms = self.client.pool.answer_timeout().as_millis();
        let call = request.call(&self.client.label, text, text_of_hex);
        let sql = format!(
            "set transaction isolation level read committed;
            set local statement_timeout = {timeout_ms};
            select * from fenced_lock.{call}"
        );
        sql.into()
    }

    fn released(&self, _: &ResourceName, row: &PgRow) -> Result<bool, InvalidAnswer> {
        Ok(row.try_get("release")?)
    }

    async fn subscribe(&self, name: &ResourceName, holder: &Holder, order: Order) -> Wakeups {
        self.notifications.subscribe(name, holder, order).await
    }
}

/// Returns a text as an SQL expression, whatever the settings of the session.
fn text(text: &str) -> String {
    // No setting changes what these characters mean, and a plain literal is parsed faster.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if text.bytes().all(is_plain) { format!("'{text}'") } else { text_of_hex(&hex(text)) }
}

/// Does the same for a text in hexadecimal digits.
fn text_of_hex(digits: &str) -> String {
    format!("pg_catalog.convert_from(pg_catalog.decode('{digits}', 'hex'), 'UTF8')")
}

fn explain(error: &sqlx::Error) -> Explained {
    let database_error = error.as_database_error();
    let code = database_error.and_then(|error| error.code()).unwrap_or_default();
    // `Display` adds the line in PostgreSQL's own source.
    let error =
        database_error.map_or_else(|| error.to_string(), |error| error.message().to_owned());
    match &*code {
        // The schema, a table or a function does not exist.
        "3F000" | "42P01" | "42883" => Explained::Rejected(format!(
            "the schema fenced_lock is missing or too old: apply migrations/postgres/lock ({error})"
        )),
        "42501" => Explained::Rejected(format!(
            "{error}; clients need `grant usage on schema fenced_lock to …`"
        )),
        // A wrong user or password, or no such database; a token above the highest; a character that
        // the database's encoding does not have; a wrong argument.
        "28000" | "28P01" | "3D000" | "23514" | "22P05" | "22023" => Explained::Rejected(error),
        // A standby, or default_transaction_read_only. A failover looks the same, so it may pass. A standby
        // has no unlogged table, either.
        "25006" | "0A000" => Explained::Unavailable(format!(
            "it takes no writes: it is a standby, or its sessions are read-only by default; name the \
             primary, or set default_transaction_read_only = off ({error})"
        )),
        _ => Explained::Unavailable(error),
    }
}
