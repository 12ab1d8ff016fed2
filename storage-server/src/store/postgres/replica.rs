//! Reads from a replica, which may lag behind.

use std::time::Duration;

use postgres_primary::{Instance, Newest, Role};
use sqlx::{PgConnection, Postgres, postgres::PgPoolOptions};
use tokio::time::{Instant, sleep, timeout};

use super::{
    CONNECT_TIMEOUT, READING,
    session::session_hosts,
    statements::{Loading, load_rows},
};
use crate::{
    row::Row,
    store::{
        Wanted,
        error::{ANSWER_TIMEOUT, OpenError, ReadError, Unreachable, no_answer},
        kept_pool::{KeptPool, ReplacedAt},
    },
};

/// How long a read waits for a version that the replica doesn't have yet.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pauses between its tries.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A replica of the database.
#[derive(Debug)]
pub(super) struct Replica(KeptPool<Postgres>);

impl Replica {
    /// Connects with the first read. The server starts without its replica, too.
    ///
    /// All connections of the server are `replaced` together: those to the primary if this one shows a
    /// newer one, and this one after a failover.
    pub(super) fn new(url: &str, newest: Newest, replaced: ReplacedAt) -> Result<Self, OpenError> {
        let hosts = session_hosts(url)?;
        if hosts.has_several() {
            let reason = "--read-url takes one host".into();
            return Err(OpenError::InvalidUrl(sqlx::Error::Configuration(reason)));
        }
        let pool = PgPoolOptions::new()
            .max_connections(READING)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect({
                let replaced = replaced.clone();
                move |connection, _| {
                    let (newest, replaced) = (newest.clone(), replaced.clone());
                    Box::pin(async move { check(connection, &newest, &replaced).await })
                }
            });
        let options = hosts.options(0).clone();
        Ok(Self(KeptPool::new(pool, options, replaced)))
    }

    /// Reads a row, again and again until it has this version or the patience is over. It may be older
    /// then.
    pub(super) async fn read(&self, wanted: Wanted<'_>, version: u64) -> Result<Row, ReadError> {
        let late = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let row = self.read_now(wanted).await?;
            if row.version >= version || Instant::now() + pause > late {
                return Ok(row);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn read_now(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        let taken_after = std::time::Instant::now();
        let mut connection = self.0.take().await.map_err(Unreachable)?;
        let wanted = [wanted];
        let loading = load_rows(&mut connection, &wanted, Loading::Visible);
        let answered = timeout(ANSWER_TIMEOUT, loading).await;
        match answered.unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT))) {
            Ok(mut rows) => {
                self.0.keep(connection, taken_after);
                Ok(rows.pop().expect("one row is wanted")?)
            }
            Err(error) => {
                connection.close_on_drop();
                Err(Unreachable(error).into())
            }
        }
    }
}

/// Checks a new connection. In another cluster, a version has another value, and so it may have on a
/// primary from before a failover.
async fn check(
    connection: &mut PgConnection,
    newest: &Newest,
    replaced: &ReplacedAt,
) -> Result<(), sqlx::Error> {
    let instance = Instance::ask(connection).await?;
    let admitted = match instance.role {
        Role::Primary => newest.admit(&instance),
        Role::Standby => newest.recognise(&instance).map(|()| false),
    };
    let rejected = |reason| sqlx::Error::Configuration(format!("the replica: {reason}").into());
    if admitted.map_err(rejected)? {
        // The others lead to an old primary.
        replaced.replace_all();
    }
    Ok(())
}
