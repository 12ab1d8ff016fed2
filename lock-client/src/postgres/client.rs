//! Locks in PostgreSQL, as a backend.

use std::{fmt, time::Duration};

use fence::{Holder, ResourceName, Token};
use sqlx::Row;

use super::{failure::failed, notifications::Notifications, primary::Primary};
use crate::{
    backend::{Attempt, Backend, BackendFuture, HeldNames, Ownership, Status, Wakeups},
    clock::unix_millis,
    sql::{InvalidDatabaseUrl, answer_timeout, client::Client, hex, names},
    terms::Order,
    ttl::Ttl,
};

/// Locks in PostgreSQL.
#[derive(Clone)]
pub struct Postgres {
    client: Client<sqlx::Postgres>,
    notifications: Notifications,
    primary: Primary,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.debug("Postgres", f)
    }
}

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
    /// [`InvalidDatabaseUrl`] if the URL can't be used.
    pub fn open(url: &str) -> Result<Self, InvalidDatabaseUrl> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            let example = "postgres://USER:PASSWORD@HOST/DATABASE";
            return Err(InvalidDatabaseUrl::new("it does not begin with postgres://", example));
        }
        let primary = Primary::parse(url)?;
        Ok(Self::new(Client::new(primary.connect(), primary.address(), failed), primary))
    }

    fn new(client: Client<sqlx::Postgres>, primary: Primary) -> Self {
        let notifications = Notifications::new(client.pool().clone(), primary.clone());
        Self { client, notifications, primary }
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour
    /// at most. It suits a database that is far away. A lease whose ttl is not several times longer is
    /// lost with one lost reply.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let Self { client, primary, .. } = self;
        Self::new(client.reconnected(primary.connect(), answer_timeout(timeout)), primary)
    }

    /// Sets a label, such as a host's name, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { client: self.client.labelled(label), ..self }
    }

    /// The call of a function, in one message that is a transaction.
    fn transaction(&self, call: &str) -> String {
        let timeout_ms = self.client.answer_timeout().as_millis();
        format!(
            "set transaction isolation level read committed;
            set local statement_timeout = {timeout_ms};
            select * from fenced_lock.{call}"
        )
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
            let (fair, since_ms) = (order == Order::Fair, unix_millis());
            let label = text(self.client.label());
            let call = format!("acquire({name}, {own}, {ttl_ms}, {fair}, {since_ms}, {label})");
            self.client.attempt(holder, ttl, self.transaction(&call)).await
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
            self.client.token(&ownership.holder, Some(ttl), self.transaction(&call)).await
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
            self.client.token(&ownership.holder, None, self.transaction(&call)).await
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let call = format!("release({}, {})", text(name.as_str()), text(holder.as_str()));
            let row = self.client.release(holder, token, self.transaction(&call)).await?;
            self.client.read_after_a_change(row.try_get("release").map_err(Into::into))
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
            self.client.status(self.transaction(&call)).await
        })
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        let (own, prefix) = (self.clone(), text(prefix));
        names::pages(move |after| {
            let (own, after) = (own.clone(), text_of_hex(&after));
            let call = format!("held_names({prefix}, {after})");
            async move { own.client.names(own.transaction(&call)).await }
        })
    }

    fn answer_timeout(&self) -> Duration {
        self.client.answer_timeout()
    }

    fn address(&self) -> String {
        self.client.address().to_owned()
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
