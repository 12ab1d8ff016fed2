//! How sessions with PostgreSQL begin.

use doctor::{Verdict, postgres::pooler};
use postgres_primary::{Hosts, Instance, InvalidHosts, Newest, address_of};
use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection, migrate::Migrator,
    postgres::PgConnectOptions,
};
use tokio::time::timeout;
use url::Url;

use super::{own_schema, promoted::Promoted, settings::Settings};
use crate::store::{
    error::{ANSWER_TIMEOUT, OpenError, no_answer},
    schema::{self, Migrations, prepare},
};

/// The settings of every session, whatever the database's own defaults are.
///
/// `lock_timeout` bounds how long another transaction's lock delays a batch.
///
/// Each batch is planned by itself. A cached plan would have to fit batches of every size, so the
/// planner assumes ten rows. If the table had few rows when it was analyzed, that plan reads the whole
/// table, however large it has become, until the next ANALYZE.
///
/// Only nested loops over the index are allowed. Other joins would lock rows in another order than
/// that of their names.
const SESSION: [(&str, &str); 8] = [
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("lock_timeout", "20ms"),
    ("statement_timeout", "8s"),
    ("plan_cache_mode", "force_custom_plan"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
];

/// Skips the check of each row that others must pass. Only the sessions of a server do so.
pub(super) const IS_SERVER: (&str, &str) = ("storage.is_server", "on");

/// The parameters of a URL that are known, and that are no secrets.
pub(crate) const PUBLIC_PARAMETERS: [&str; 17] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "target_session_attrs",
    "user",
];
/// Those that may have a password. There is also `options[NAME]`.
const SECRET_PARAMETERS: [&str; 2] = ["options", "password"];

/// The hosts in a URL such as `postgres://user@a,b:5433/database?target_session_attrs=read-write`.
pub(super) fn session_hosts(url: &str) -> Result<Hosts, OpenError> {
    Hosts::parse(url, session_options)
}

/// The same, for sessions that set nothing.
pub(super) fn plain_hosts(url: &str) -> Result<Hosts, OpenError> {
    Hosts::parse(url, plain_options)
}

impl From<InvalidHosts> for OpenError {
    fn from(error: InvalidHosts) -> Self {
        Self::InvalidUrl(sqlx::Error::config(error))
    }
}

/// The options of a server's session with one host.
fn session_options(url: &Url) -> Result<PgConnectOptions, OpenError> {
    Ok(plain_options(url)?.application_name("storage-server").options(SESSION))
}

/// The options of a session with one host that sets nothing, unless the URL does.
fn plain_options(url: &Url) -> Result<PgConnectOptions, OpenError> {
    reject_unknown_parameters(url)?;
    let options = PgConnectOptions::from_url(url).map_err(OpenError::InvalidUrl)?;
    Ok(options.disable_statement_logging())
}

/// sqlx would ignore them, and log their values: a misspelt password, for example.
fn reject_unknown_parameters(url: &Url) -> Result<(), OpenError> {
    let is_known = |key: &str| {
        PUBLIC_PARAMETERS.contains(&key)
            || SECRET_PARAMETERS.contains(&key)
            || key.starts_with("options[")
    };
    match url.query_pairs().find(|(key, _)| !is_known(key)) {
        Some((parameter, _)) => {
            Err(OpenError::UnknownParameter { parameter: parameter.into_owned() })
        }
        None => Ok(()),
    }
}

/// Connects to a database that keeps fences safely, and applies the migrations or checks them. The
/// session waits for locks without a limit, such as for another server that migrates at this moment.
pub(super) async fn open_session(
    options: &PgConnectOptions,
    migrations: Migrations,
) -> Result<PgConnection, OpenError> {
    let database = options.get_database().unwrap_or(options.get_username());
    let address = format!("PostgreSQL database {database} at {}", address_of(options));
    let connect_error = |source| OpenError::Connect { database: address.clone(), source };
    let opening = timeout(ANSWER_TIMEOUT, async {
        let mut connection = options.connect().await?;
        let settings = Settings::ask(&mut connection).await?;
        Ok((connection, settings))
    });
    let opened = opening.await.unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT)));
    let (mut connection, settings) = opened.map_err(connect_error)?;
    if let Some(reason) = settings.unsafe_reason() {
        return Err(OpenError::Unsafe { database: address, reason });
    }
    // What the sessions of a server set and prepare would get to those of others.
    let pooler = pooler(options).await;
    if pooler.verdict == Verdict::UnfitForFence {
        let cure = pooler.cure.map(|cure| cure.advice).unwrap_or_default();
        let reason = format!("{}. {}: {cure}", pooler.found, pooler.why.unwrap_or_default());
        return Err(OpenError::Unsafe { database: address, reason });
    }
    let patient = "set lock_timeout = 0; set statement_timeout = 0";
    connection.execute(patient).await.map_err(connect_error)?;
    prepare_schema(migrations, &mut connection, &address).await?;
    Ok(connection)
}

/// Brings the schema up to date, or checks that it is, in one transaction. Nothing in it is used before it
/// is known whose it is.
async fn prepare_schema(
    migrations: Migrations,
    connection: &mut PgConnection,
    address: &str,
) -> Result<(), OpenError> {
    let failed = |source| OpenError::Connect { database: address.to_owned(), source };
    let mut transaction = connection.begin().await.map_err(failed)?;
    // 1. Nothing is missing, usually.
    let exists = is_own_schema(&mut transaction, address).await?;
    let migrator = migrator();
    let check = prepare(Migrations::Check, &migrator, &mut *transaction, exists, address).await;
    match check {
        Err(OpenError::OutdatedSchema { .. }) if migrations == Migrations::Apply => {}
        checked => {
            transaction.rollback().await.map_err(failed)?;
            return checked;
        }
    }
    // 2. Create the schema before looking whose it is: another role may have created it since.
    own_schema::create(&mut transaction).await.map_err(failed)?;
    let exists = is_own_schema(&mut transaction, address).await?;
    prepare(Migrations::Apply, &migrator, &mut *transaction, exists, address).await?;
    // 3. The first time, nobody else has a right. Later, the rights are the administrator's.
    if !exists {
        own_schema::revoke_default_privileges(&mut transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

/// Returns whether the table of applied migrations exists.
///
/// # Errors
/// If something in the schema is another role's.
async fn is_own_schema(transaction: &mut PgConnection, address: &str) -> Result<bool, OpenError> {
    let failed = |source| OpenError::Connect { database: address.to_owned(), source };
    if let Some(reason) = own_schema::foreign_object(transaction).await.map_err(failed)? {
        return Err(OpenError::Unsafe { database: address.to_owned(), reason });
    }
    let table = "select to_regclass('storage.migrations') is not null";
    sqlx::query_scalar(table).fetch_one(transaction).await.map_err(failed)
}

/// Checks a new connection: the server may have been restarted with other settings, or the address may
/// lead to another one by now, such as an old primary. Returns whether it is a newer primary than all
/// before.
pub(super) async fn check_session(
    connection: &mut PgConnection,
    newest: &Newest,
    promoted: &Promoted,
) -> Result<bool, sqlx::Error> {
    let rejected = |reason: String| sqlx::Error::Configuration(reason.into());
    if let Some(reason) = Settings::ask(connection).await?.unsafe_reason() {
        return Err(rejected(reason));
    }
    let primary = Instance::ask(connection).await?;
    let is_newer = newest.admit(&primary).map_err(rejected)?;
    promoted.reject(&primary).map_err(rejected)?;
    Ok(is_newer)
}

/// All files of `migrations/postgres/storage`.
const MIGRATIONS: [(&str, &str); 1] =
    [("resources", include_str!("../../../migrations/postgres/0001_resources.sql"))];

fn migrator() -> Migrator {
    let mut migrator = schema::migrator(&MIGRATIONS, "storage.migrations");
    // `own_schema` creates the schema, under a lock that lasts until the transaction ends.
    migrator.set_locking(false);
    migrator
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameter_of_several_hosts_is_rejected() {
        session_hosts("postgres://u@a,b/d?target_session_attrs=primary").unwrap();
        let error = session_hosts("postgres://u@a,b/d?target=any").unwrap_err();
        assert!(error.to_string().contains("unknown parameter: target"), "{error}");
    }
}
