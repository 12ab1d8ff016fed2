//! Locks in PostgreSQL, as a backend.

use std::{fmt, str::FromStr, time::Duration};

use fence::{Holder, ResourceName, Token};
use sqlx::{
    Row,
    postgres::{PgConnectOptions, PgRow},
};

use super::{
    failure::{failed, rejected},
    notifications::Notifications,
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
        answer_timeout, hex,
        lanes::Lanes,
        names, printable,
    },
    terms::Order,
    ttl::Ttl,
};

const EXAMPLE: &str = "postgres://USER:PASSWORD@HOST/DATABASE";

/// Locks in PostgreSQL.
#[derive(Clone)]
pub struct Postgres {
    lanes: Lanes<sqlx::Postgres>,
    notifications: Notifications,
    address: String,
    label: String,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("address", &self.address)
            .field("answer_timeout", &self.lanes.answer_timeout())
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Makes a client of the database at a URL, such as
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full`. It connects when it is first
    /// used.
    ///
    /// What the URL leaves out comes from the environment (`PGPASSWORD` and so on). For a Unix socket,
    /// its folder is given as `?host=FOLDER`. With TLS, the server's certificate must be signed by one
    /// that the system trusts, or by the one in `?sslrootcert=FILE`.
    ///
    /// # Errors
    /// [`InvalidDatabaseUrl`] if the URL can't be used.
    pub fn open(url: &str) -> Result<Self, InvalidDatabaseUrl> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(InvalidDatabaseUrl::new("it does not begin with postgres://", EXAMPLE));
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| InvalidDatabaseUrl::unparsable(url, &error, EXAMPLE))?
            // PgBouncer refuses a connection that sets it.
            .extra_float_digits(None);
        let host = match options.get_socket() {
            Some(folder) => folder.display().to_string(),
            None => options.get_host().to_owned(),
        };
        let database = options.get_database().unwrap_or(options.get_username());
        let address = format!("postgres://{host}:{}/{database}", options.get_port());
        let lanes = Lanes::new(options, DEFAULT_ANSWER_TIMEOUT);
        let notifications = Notifications::new(lanes.clone());
        Ok(Self { lanes, notifications, address, label: String::new() })
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour
    /// at most. It suits a database that is far away. A lease whose ttl is not several times longer is
    /// lost with one lost reply.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let lanes = Lanes::new(self.lanes.options().clone(), answer_timeout(timeout));
        Self { notifications: Notifications::new(lanes.clone()), lanes, ..self }
    }

    /// Sets a label, such as a host's name, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { label: printable(label), ..self }
    }

    /// Calls a function of the schema that neither tries nor releases.
    async fn call(&self, call: &str) -> Result<PgRow, BackendError> {
        self.answered(self.lanes.fetch(self.transaction(call)).await)
    }

    /// The call of a function, in one message that is a transaction.
    fn transaction(&self, call: &str) -> String {
        let timeout_ms = self.lanes.answer_timeout().as_millis();
        format!(
            "set transaction isolation level read committed;
            set local statement_timeout = {timeout_ms};
            select * from fenced_lock.{call}"
        )
    }

    fn answered(&self, answer: Result<PgRow, sqlx::Error>) -> Result<PgRow, BackendError> {
        answer.map_err(|error| failed(&self.address, &error))
    }

    fn read<T>(&self, answer: Result<T, InvalidAnswer>) -> Result<T, BackendError> {
        answer.map_err(|invalid| rejected(&self.address, &invalid.to_string()))
    }
}

impl Backend for Postgres {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            let (name, own, ttl_ms) = (text(name.as_str()), text(holder.as_str()), ttl.as_millis());
            let (fair, since_ms, label) = (order == Order::Fair, unix_millis(), text(&self.label));
            let call = format!("acquire({name}, {own}, {ttl_ms}, {fair}, {since_ms}, {label})");
            let asked = Moment::now();
            let tried = self.lanes.fetch_try(holder, self.transaction(&call)).await;
            let row = self.answered(tried)?;
            self.read(answer::attempt(&row, holder, asked))
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let (name, holder) = (text(name.as_str()), text(ownership.holder.as_str()));
            let call = format!("renew({name}, {holder}, {}, {})", ownership.grant, ttl.as_millis());
            self.read(answer::token(&self.call(&call).await?, "token"))
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let (name, holder) = (text(name.as_str()), text(ownership.holder.as_str()));
            let call = format!("reissue({name}, {holder}, {}, {above})", ownership.grant);
            self.read(answer::token(&self.call(&call).await?, "token"))
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        _: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let call = format!("release({}, {})", text(name.as_str()), text(holder.as_str()));
            let released = self.lanes.fetch_release(holder, self.transaction(&call)).await;
            let row = self.answered(released)?;
            self.read(row.try_get("release").map_err(Into::into))
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move {
            // A release that does not see the place of a fair waiter yet notifies all.
            let mut payloads = vec![format!(" {name}")];
            if order == Order::Fair {
                let beginning: String = holder.as_str().chars().take(8).collect();
                payloads.push(format!("{beginning} {name}"));
            }
            Ok(self.notifications.subscribe(payloads).await)
        })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(async move {
            let call = format!("status({})", text(name.as_str()));
            self.read(answer::status(&self.call(&call).await?))
        })
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        let (client, prefix) = (self.clone(), text(prefix));
        names::pages(move |after| {
            let after = text_of_hex(&after);
            let (client, call) = (client.clone(), format!("held_names({prefix}, {after})"));
            async move {
                let row = client.call(&call).await?;
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

/// Returns a text as an SQL expression, whatever the settings of the session.
fn text(text: &str) -> String {
    text_of_hex(&hex(text))
}

/// Does the same for a text in hexadecimal digits.
fn text_of_hex(digits: &str) -> String {
    format!("pg_catalog.convert_from(pg_catalog.decode('{digits}', 'hex'), 'UTF8')")
}
