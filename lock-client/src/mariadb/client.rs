//! Locks in MariaDB, as a backend.

use std::{str::FromStr, sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use sqlx::{
    ConnectOptions, Executor, MySql,
    mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlRow, MySqlSslMode},
};

use crate::{
    InvalidUrl,
    backend::{Wakeups, answer_timeout, debug_by_address},
    service_url::UrlSettings,
    sql::{
        UNUSABLE,
        answer::InvalidAnswer,
        backend::{Client, Explained, Request, SqlBackend},
        certificates, hex,
        line::{Connected, Statements},
        polling,
        pool::Connect,
        unparsable,
        url::KnownSettings,
    },
    terms::Order,
    tls::{Certificates, NamedFiles},
    waiters::Waiters,
};

const EXAMPLE: &str = "mariadb://USER:PASSWORD@HOST/DATABASE";
const SETTINGS: KnownSettings = KnownSettings {
    applied: "ssl-mode ssl-ca ssl-cert ssl-key socket charset collation time-zone sslmode sslca sslcert \
              sslkey timezone statement-cache-capacity",
    without_effect: "connect-timeout connect_timeout compress",
};

/// Locks in MariaDB.
#[derive(Clone)]
pub struct MariaDb {
    client: Client<MySql>,
    waiters: Waiters,
    server: Server,
}

#[derive(Clone)]
struct Server {
    options: MySqlConnectOptions,
    /// `None` if the connections need none.
    certificates: Option<Certificates>,
}

debug_by_address!(MariaDb);

impl MariaDb {
    /// Makes a client of the database at a URL, such as
    /// `mariadb://USER:PASSWORD@HOST:PORT/DATABASE?ssl-mode=VERIFY_IDENTITY`. It connects when it is
    /// first used. `mysql://` means the same.
    ///
    /// A Unix socket is given as `?socket=FILE`. With TLS, the server's certificate must be signed by
    /// one that the system trusts, or by the one in `?ssl-ca=FILE`.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        Self::parse(url).map_err(|invalid| invalid.within(UNUSABLE, EXAMPLE))
    }

    fn parse(url: &str) -> Result<Self, InvalidUrl> {
        crate::tls::choose_provider();
        if !["mariadb://", "mysql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(InvalidUrl::new("it does not begin with mariadb://"));
        }
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let hosts = authority.rsplit('@').next().unwrap_or_default();
        // A password that is not encoded may have a comma.
        if hosts.contains(',') && !rest.contains('@') {
            let reason =
                format!("it names several hosts ({hosts}), and locks need one writable server");
            return Err(InvalidUrl::new(reason));
        }
        let url = &SETTINGS.without_ineffective(url);
        let options =
            MySqlConnectOptions::from_str(url).map_err(|error| unparsable(url, &error))?;
        SETTINGS.check(url)?;
        let database = options.get_database().unwrap_or_default();
        let address = match options.get_socket() {
            Some(socket) => format!("mariadb://{}/{database}", socket.display()),
            None => format!("mariadb://{}:{}/{database}", options.get_host(), options.get_port()),
        };
        let certificates = certificates::read(named_files(url), is_verified(&options))?;
        let server = Server { options: options.disable_statement_logging(), certificates };
        let client = Client::new(server.connect(), address, explain);
        Ok(Self { client, server, waiters: Waiters::default() })
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour
    /// at most. It suits a database that is far away. A lease whose ttl is not several times longer is
    /// lost with one lost reply.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let connect = self.server.connect();
        Self { client: self.client.reconnected(connect, answer_timeout(timeout)), ..self }
    }

    /// Sets a label, such as a host's name, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { client: self.client.labelled(label), ..self }
    }
}

impl SqlBackend for MariaDb {
    type Database = MySql;

    fn client(&self) -> &Client<MySql> {
        &self.client
    }

    /// Calls a procedure, in one statement.
    fn statements(&self, request: Request<'_>) -> Statements {
        // In seconds. It ends each wait: for a row, for somebody's ALTER TABLE, and for the commit.
        // Without it, the call could be carried out hours after its caller has given up.
        let limit = self.client.pool.answer_timeout().as_secs_f64();
        // Texts and bytes in hexadecimal digits mean the same whatever the settings of the session.
        let (text, bytes) = (
            |text: &str| format!("_utf8mb4 x'{}'", hex(text)),
            |digits: &str| format!("x'{digits}'"),
        );
        let call = request.call(&self.client.label, text, bytes);
        format!("set statement max_statement_time = {limit} for call fenced_lock_{call}").into()
    }

    fn released(&self, name: &ResourceName, row: &MySqlRow) -> Result<bool, InvalidAnswer> {
        polling::released::<MySql>(&self.waiters, name, row)
    }

    async fn subscribe(&self, name: &ResourceName, holder: &Holder, order: Order) -> Wakeups {
        polling::subscribe(&self.waiters, name, holder, order, || true)
    }
}

impl Server {
    /// Makes connections each of whose requests is a transaction, whatever the server's `autocommit` is.
    /// Without that, all reads of a connection would see the state at its first one.
    fn connect(&self) -> Connect<MySql> {
        let own = self.clone();
        Arc::new(move || {
            let options = own.present_options();
            Box::pin(async move {
                let mut connection = options.connect().await?;
                connection.execute("set autocommit = 1").await?;
                Ok(Connected::new(connection))
            })
        })
    }

    /// The options with the certificates that are on disk now.
    fn present_options(&self) -> MySqlConnectOptions {
        let mut options = self.options.clone();
        let Some(files) = self.certificates.as_ref().map(Certificates::current) else {
            return options;
        };
        if is_verified(&options) {
            options = options.ssl_ca_from_pem(files.authorities());
        }
        match files.identity() {
            Some([certificate, key]) => options
                .ssl_client_cert_from_pem(certificate.bytes())
                .ssl_client_key_from_pem(key.bytes()),
            None => options,
        }
    }
}

fn is_verified(options: &MySqlConnectOptions) -> bool {
    matches!(options.get_ssl_mode(), MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity)
}

/// The files of certificates that a URL names.
fn named_files(url: &str) -> NamedFiles {
    let settings = UrlSettings::parse(url.split_once('?').map_or("", |(_, query)| query));
    let [authority, certificate, key] =
        [("ssl-ca", "sslca"), ("ssl-cert", "sslcert"), ("ssl-key", "sslkey")].map(
            |(name, short)| (name, settings.get(name).or(settings.get(short)).map(str::to_owned)),
        );
    NamedFiles { authority, certificate, key }
}

fn explain(error: &sqlx::Error) -> Explained {
    let number = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number);
    match number {
        // A table or a procedure does not exist.
        Some(1146 | 1305) => Explained::Rejected(format!(
            "the tables of the locks are missing: apply migrations/mariadb/lock ({error})"
        )),
        // A wrong user or password, no right, or no such database; a wrong argument; a token above the
        // highest.
        Some(1044 | 1045 | 1046 | 1049 | 1142 | 1370 | 1644 | 1698 | 4025) => {
            Explained::Rejected(error.to_string())
        }
        // The server, or the session by default, is read-only. A failover looks the same, so it may pass.
        Some(1290 | 1792 | 1836) => Explained::Unavailable(format!(
            "it takes no writes: it is read-only, as a replica is; name the primary, or set global \
             read_only = 0 ({error})"
        )),
        Some(1665) => Explained::Unavailable(format!(
            "its binary log takes no writes at the level READ COMMITTED: set global binlog_format = \
             'MIXED', or 'ROW' ({error})"
        )),
        _ => Explained::Unavailable(error.to_string()),
    }
}
