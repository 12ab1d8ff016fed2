//! Reads from a replica, which may lag behind.

use std::time::Duration;

use postgres_primary::Newest;
use sqlx::{Postgres, postgres::PgPoolOptions};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    CONNECT_TIMEOUT, READING,
    promoted::{Promoted, watch},
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
pub(super) struct Replica {
    connections: KeptPool<Postgres>,
    _watch: AbortOnDropHandle<()>,
}

impl Replica {
    /// Connects with the first read. The server starts without its replica, too.
    ///
    /// All connections of the server are `replaced` together: those to the primary if this one was
    /// `promoted`, and this one after a failover.
    pub(super) fn new(
        url: &str,
        newest: Newest,
        replaced: ReplacedAt,
        promoted: Promoted,
    ) -> Result<Self, OpenError> {
        let hosts = session_hosts(url)?;
        if hosts.has_several() {
            let reason = "--read-url takes one host".into();
            return Err(OpenError::InvalidUrl(sqlx::Error::Configuration(reason)));
        }
        let pool = PgPoolOptions::new()
            .max_connections(READING)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect({
                let (promoted, newest, replaced) =
                    (promoted.clone(), newest.clone(), replaced.clone());
                move |connection, _| {
                    let (promoted, newest, replaced) =
                        (promoted.clone(), newest.clone(), replaced.clone());
                    Box::pin(async move { promoted.look(connection, &newest, &replaced).await })
                }
            });
        let options = hosts.options(0).clone();
        let watch = tokio::spawn(watch(options.clone(), promoted, newest, replaced.clone()));
        let connections = KeptPool::new(pool, options, replaced);
        Ok(Self { connections, _watch: AbortOnDropHandle::new(watch) })
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
        let mut connection = self.connections.take().await.map_err(Unreachable)?;
        let wanted = [wanted];
        let loading = load_rows(&mut connection, &wanted, Loading::Visible);
        let answered = timeout(ANSWER_TIMEOUT, loading).await;
        match answered.unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT))) {
            Ok(mut rows) => {
                self.connections.keep(connection, taken_after);
                Ok(rows.pop().expect("one row is wanted")?)
            }
            Err(error) => {
                connection.close_on_drop();
                Err(Unreachable(error).into())
            }
        }
    }
}
