//! Locks in MariaDB, as a backend.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use fence::{Holder, ResourceName, Token};
use sqlx::{ConnectOptions, Executor, mysql::MySqlConnectOptions};

use super::failure::failed;
use crate::{
    backend::{Attempt, Backend, BackendFuture, HeldNames, Ownership, Status, Wakeups},
    clock::unix_millis,
    sql::{
        InvalidDatabaseUrl, answer::Columns, answer_timeout, client::Client, hex,
        local_waiters::LocalWaiters, names, pool::Connect, url::KnownSettings,
    },
    terms::Order,
    ttl::Ttl,
};

const EXAMPLE: &str = "mariadb://USER:PASSWORD@HOST/DATABASE";
const SETTINGS: KnownSettings = KnownSettings {
    applied: &[
        "ssl-mode",
        "ssl-ca",
        "ssl-cert",
        "ssl-key",
        "socket",
        "charset",
        "collation",
        "time-zone",
        "sslmode",
        "sslca",
        "sslcert",
        "sslkey",
        "timezone",
        "statement-cache-capacity",
    ],
    without_effect: &["connect-timeout", "connect_timeout", "compress"],
    example: EXAMPLE,
};

/// Locks in MariaDB.
#[derive(Clone)]
pub struct MariaDb {
    client: Client<sqlx::MySql>,
    waiters: LocalWaiters,
    options: MySqlConnectOptions,
}

impl fmt::Debug for MariaDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.debug("MariaDb", f)
    }
}

impl MariaDb {
    /// Makes a client of the database at a URL, such as
    /// `mariadb://USER:PASSWORD@HOST:PORT/DATABASE?ssl-mode=VERIFY_IDENTITY`. It connects when it is
    /// first used. `mysql://` means the same.
    ///
    /// A Unix socket is given as `?socket=FILE`. With TLS, the server's certificate must be signed by
    /// one that the system trusts, or by the one in `?ssl-ca=FILE`.
    ///
    /// # Errors
    /// [`InvalidDatabaseUrl`] if the URL can't be used.
    pub fn open(url: &str) -> Result<Self, InvalidDatabaseUrl> {
        if !["mariadb://", "mysql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(InvalidDatabaseUrl::new("it does not begin with mariadb://", EXAMPLE));
        }
        let authority = url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        let hosts = authority.rsplit('@').next().unwrap_or_default();
        if hosts.contains(',') {
            let reason =
                format!("it names several hosts ({hosts}), and locks need one writable server");
            return Err(InvalidDatabaseUrl::new(&reason, EXAMPLE));
        }
        let url = &SETTINGS.without_ineffective(url);
        let options = MySqlConnectOptions::from_str(url)
            .map_err(|error| InvalidDatabaseUrl::unparsable(url, &error, EXAMPLE))?;
        SETTINGS.check(url)?;
        let database = options.get_database().unwrap_or_default();
        let address = match options.get_socket() {
            Some(socket) => format!("mariadb://{}/{database}", socket.display()),
            None => format!("mariadb://{}:{}/{database}", options.get_host(), options.get_port()),
        };
        let client = Client::new(connection(&options), address, failed);
        Ok(Self { client, options, waiters: LocalWaiters::default() })
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour
    /// at most. It suits a database that is far away. A lease whose ttl is not several times longer is
    /// lost with one lost reply.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let connect = connection(&self.options);
        Self { client: self.client.reconnected(connect, answer_timeout(timeout)), ..self }
    }

    /// Sets a label, such as a host's name, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { client: self.client.labelled(label), ..self }
    }

    /// The call of a procedure, in one statement.
    fn transaction(&self, call: &str) -> String {
        // In seconds. It ends each wait: for a row, for somebody's ALTER TABLE, and for the commit.
        // Without it, the call could be carried out hours after its caller has given up.
        let limit = self.client.answer_timeout().as_secs_f64();
        format!("set statement max_statement_time = {limit} for call fenced_lock_{call}")
    }
}

impl Backend for MariaDb {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            let (ttl_ms, fair) = (ttl.as_millis(), order == Order::Fair);
            let (since_ms, label) = (unix_millis(), text(self.client.label()));
            let call = format!(
                "acquire({}, {ttl_ms}, {fair}, {since_ms}, convert({label} using utf8mb4))",
                owner(name, holder)
            );
            self.client.attempt(holder, ttl, self.transaction(&call)).await
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        Ownership { holder, grant }: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let call = format!("renew({}, {grant}, {})", owner(name, holder), ttl.as_millis());
            self.client.token(holder, Some(ttl), self.transaction(&call)).await
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        Ownership { holder, grant }: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let call = format!("reissue({}, {grant}, {above})", owner(name, holder));
            self.client.token(holder, None, self.transaction(&call)).await
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let release = self.transaction(&format!("release({})", owner(name, holder)));
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
        Box::pin(async move {
            let call = format!("status({})", text(name.as_str()));
            self.client.status(self.transaction(&call)).await
        })
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        let (own, prefix) = (self.clone(), text(prefix));
        names::pages(move |after| {
            let (own, call) = (own.clone(), format!("held_names({prefix}, x'{after}')"));
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

/// Makes connections each of whose requests is a transaction, whatever the server's `autocommit` is.
/// Without that, all reads of a connection would see the state at its first one.
fn connection(options: &MySqlConnectOptions) -> Connect<sqlx::MySql> {
    let options = options.clone().disable_statement_logging();
    Arc::new(move || {
        let options = options.clone();
        Box::pin(async move {
            let mut connection = options.connect().await?;
            connection.execute("set autocommit = 1").await?;
            Ok(connection)
        })
    })
}

fn owner(name: &ResourceName, holder: &Holder) -> String {
    format!("{}, {}", text(name.as_str()), text(holder.as_str()))
}

/// Returns a text as an SQL expression, whatever the settings of the session.
fn text(text: &str) -> String {
    format!("x'{}'", hex(text))
}
