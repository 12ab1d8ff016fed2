//! Resources in a PostgreSQL database.

mod changes;
pub(super) mod doctor;
pub(super) mod maintenance;
mod own_schema;
mod primary;
mod promoted;
mod replica;
mod session;
mod settings;
mod standbys;
mod statements;

use std::{
    borrow::Cow,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fence::ResourceName;
use postgres_primary::{Instance, Newest};
use sqlx::{Connection, PgConnection, Postgres, postgres::PgPoolOptions};
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::session::PUBLIC_PARAMETERS;
use self::{
    primary::{Current, Following, find_primary},
    promoted::Promoted,
    replica::Replica,
    session::{IS_SERVER, check_session, open_session, session_hosts},
    standbys::{RequiredStandbys, Standbys, hidden_standbys},
    statements::{Loading, end_silent_sessions, list_rows, load_rows, locked_rows, probe},
};
use super::{
    Change, Decide, ReadsAtOnce, Store, Wanted,
    error::{
        ANSWER_TIMEOUT, ApplyError, OpenError, ReadError, Unreachable, UnreadableRow, no_answer,
        primary_replaced,
    },
    kept_pool::{KeptPool, ReplacedAt, Taken},
    list::{Listing, NAMES_OF_PAGE, Page},
    replication::Replication,
    schema::Migrations,
};
use crate::row::Row;

/// The connections of the committer: for its batches, and for each blocked resource that it tries.
const COMMITTING: u32 = 6;
/// The connections of other loads on which something is decided.
const READING_DURABLE: u32 = 3;
/// The connections of everybody else.
const READING: u32 = 4;
/// How many of them lists take at most.
const LISTS: usize = 2;
/// The connection of the probe, for which no read has to wait, and the other way round.
const PROBING: u32 = 1;
/// The SQLSTATE of a write to a standby, or in a read-only session.
const READ_ONLY: &str = "25006";
/// The SQLSTATE of a statement that has waited for a lock for too long.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// How long to try to connect, or to wait for a free connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Resources in a PostgreSQL database that any number of servers may share.
///
/// Nearly every statement is a transaction of its own, so a server that is paused between two
/// statements holds no lock.
#[derive(Debug)]
pub(super) struct PostgresStore {
    address: String,
    committing: Arc<KeptPool<Postgres>>,
    reading_durable: Arc<KeptPool<Postgres>>,
    reading: Arc<KeptPool<Postgres>>,
    probing: Arc<KeptPool<Postgres>>,
    /// How many connections for changes were made so far.
    connections_made: Arc<AtomicU64>,
    replaced_at: ReplacedAt,
    following: Following,
    required_standbys: Option<RequiredStandbys>,
    replica: Option<Replica>,
    promoted: Promoted,
}

impl PostgresStore {
    /// Connects, and applies the migrations or checks them.
    pub(super) async fn connect(
        url: &str,
        migrations: Migrations,
        Replication { require_sync_standby, read_url }: &Replication,
    ) -> Result<Self, OpenError> {
        let hosts = session_hosts(url)?;
        let newest = Newest::default();
        let read_url = read_url.as_deref();
        let replaced_at = ReplacedAt::default();
        let promoted = Promoted::default();
        let replica =
            |url| Replica::new(url, newest.clone(), replaced_at.clone(), promoted.clone());
        let replica = read_url.map(replica).transpose()?;
        let primary = find_primary(&hosts, &newest).await?;
        let address = hosts.database();
        let mut connection = open_session(hosts.options(primary), migrations).await?;
        let connect_error = |source| OpenError::Connect { database: address.clone(), source };
        let reject = |reason| OpenError::Unsafe { database: address.clone(), reason };
        let instance = Instance::ask(&mut connection).await.map_err(connect_error)?;
        newest.admit(&instance).map_err(reject)?;
        if require_sync_standby.is_some() {
            let hidden = hidden_standbys(&mut connection).await.map_err(connect_error)?;
            hidden.map_or(Ok(()), |reason| Err(reject(reason)))?;
        }
        connection.close().await.map_err(connect_error)?;

        let hosts = hosts.setting(IS_SERVER);
        let pool = |connections| {
            let made = Arc::new(AtomicU64::new(0));
            let counted = made.clone();
            let (newest, replaced, promoted) =
                (newest.clone(), replaced_at.clone(), promoted.clone());
            let pool = PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(CONNECT_TIMEOUT)
                .after_connect(move |connection, _| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let (newest, replaced, promoted) =
                        (newest.clone(), replaced.clone(), promoted.clone());
                    Box::pin(async move {
                        if check_session(connection, &newest, &promoted).await? {
                            // The others may lead to an old primary.
                            replaced.replace_all();
                        }
                        Ok(())
                    })
                });
            let pool = KeptPool::new(pool, hosts.options(primary).clone(), replaced_at.clone());
            (Arc::new(pool), made)
        };
        let (committing, connections_made) = pool(COMMITTING);
        let [(reading_durable, _), (reading, _), (probing, _)] =
            [READING_DURABLE, READING, PROBING].map(pool);
        let pools =
            vec![committing.clone(), reading_durable.clone(), reading.clone(), probing.clone()];
        let following = Following::start(hosts, primary, newest, pools);
        let required_standbys = require_sync_standby.map(RequiredStandbys::new);
        Ok(Self {
            address,
            committing,
            reading_durable,
            reading,
            probing,
            connections_made,
            replaced_at,
            following,
            required_standbys,
            replica,
            promoted,
        })
    }
}

impl PostgresStore {
    /// Takes a connection to the primary of this moment. What is sent over it must not be sent to another
    /// primary, so the moment is noted before any wait.
    async fn take(
        &self,
        connections: &KeptPool<Postgres>,
    ) -> Result<(Taken<Postgres>, Current), sqlx::Error> {
        let primary = self.following.current();
        self.following.rejection()?;
        let taken = connections.take().await;
        let mut connection = taken.map_err(|error| self.promoted.explain(error))?;
        if primary.is_replaced() {
            connection.close_on_drop();
            return Err(primary_replaced());
        }
        Ok((connection, primary))
    }

    /// Runs a statement that changes nothing.
    async fn ask<T>(
        &self,
        connections: &KeptPool<Postgres>,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, Unreachable> {
        let (mut connection, mut primary) = self.take(connections).await?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let answered = answer_until(deadline, &mut primary, statement(&mut connection)).await;
        Ok(self.keep_or_close(connections, connection, &primary, answered)?)
    }

    /// Returns an error while required standbys are missing. A look costs a round trip, so it is left out
    /// if the last one was just now.
    async fn expect_standbys(&self, connections: &KeptPool<Postgres>) -> Result<(), sqlx::Error> {
        let Some(required) = self.required_standbys.as_ref().filter(|it| !it.were_seen()) else {
            return Ok(());
        };
        let look = async |connection: &mut _| Standbys::look(connection, None).await;
        let standbys = self.ask(connections, look).await.map_err(|Unreachable(error)| error)?;
        let admitted = required.admit(&standbys);
        admitted.map_err(|reason| sqlx::Error::Configuration(reason.into()))
    }

    /// Loads rows, and waits until the standbys have what was loaded.
    async fn load_durable(
        &self,
        connections: &KeptPool<Postgres>,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        self.expect_standbys(connections).await?;
        let load = async |connection: &mut PgConnection| {
            let rows = load_rows(connection, wanted, self.durability()).await?;
            self.confirm(connection).await?;
            Ok(rows)
        };
        self.ask(connections, load).await
    }

    /// Waits until the required standbys have what this session has committed.
    async fn confirm(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        match &self.required_standbys {
            Some(required) => required.confirm(connection).await,
            None => Ok(()),
        }
    }

    /// What has to be durable before an answer is decided on rows that were loaded.
    fn durability(&self) -> Loading {
        if self.required_standbys.is_some() { Loading::Confirmed } else { Loading::Durable }
    }

    /// Keeps the connection if its statement was answered. Closes it if the statement may still be
    /// running.
    fn keep_or_close<T>(
        &self,
        connections: &KeptPool<Postgres>,
        mut connection: Taken<Postgres>,
        primary: &Current,
        answered: Result<Result<T, sqlx::Error>, NoAnswer>,
    ) -> Result<T, sqlx::Error> {
        let answer = answered.unwrap_or_else(|no_answer| {
            if let NoAnswer::TimedOut = no_answer {
                tokio::spawn(end_sessions(self.probing.clone(), self.address.clone()));
            }
            Err(no_answer.into())
        });
        match &answer {
            Ok(_) => connections.keep(connection, primary.noted_at),
            // It has ended the statement. Without a new connection, the committer knows its rows still.
            Err(error) if sqlstate(error) == LOCK_NOT_AVAILABLE => {
                connections.keep(connection, primary.noted_at);
            }
            // The primary may have become a standby, and the other sessions may lead to it too.
            Err(error) if is_read_only(error) => {
                self.replaced_at.replace_all();
                connection.close_on_drop();
            }
            // The session may have survived this error or not: the pool pings it on its return.
            Err(sqlx::Error::Database(_)) => {}
            Err(_) => connection.close_on_drop(),
        }
        answer
    }
}

/// The last name that may be looked at for a page, if there are more.
async fn last_name(
    connection: &mut PgConnection,
    page: &Page,
) -> Result<Option<String>, sqlx::Error> {
    let Range { start, end } = page.range();
    let select = r#"
        select resource
        from storage.resource
        where resource >= $1 and resource < $2
        order by resource
        limit 1 offset $3
        "#;
    sqlx::query_scalar(select)
        .bind(start)
        .bind(end)
        .bind(NAMES_OF_PAGE - 1)
        .fetch_optional(connection)
        .await
}

/// Waits for an answer until a deadline, or until the primary is replaced or rejected.
async fn answer_until<T>(
    deadline: Instant,
    primary: &mut Current,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<Result<T, sqlx::Error>, NoAnswer> {
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        () = sleep_until(deadline) => Err(NoAnswer::TimedOut),
        () = primary.replaced() => Err(NoAnswer::OldPrimary),
    }
}

/// Why a statement has no answer. It may be running.
enum NoAnswer {
    TimedOut,
    /// The primary that it was sent to is replaced or rejected now.
    OldPrimary,
}

impl From<NoAnswer> for sqlx::Error {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::TimedOut => no_answer(ANSWER_TIMEOUT),
            NoAnswer::OldPrimary => primary_replaced(),
        }
    }
}

/// Ends sessions that wait for a standby though this server has closed their connections.
async fn end_sessions(connections: Arc<KeptPool<Postgres>>, database: String) {
    let ended = async {
        let mut connection = connections.take().await?;
        end_silent_sessions(&mut connection).await
    };
    if let Ok(Err(error)) = timeout(ANSWER_TIMEOUT, ended).await {
        tracing::warn!(database, "can't end the sessions that gave no answer: {error}");
    }
}

fn is_read_only(error: &sqlx::Error) -> bool {
    sqlstate(error) == READ_ONLY
}

/// The SQLSTATE, which is empty if the error is not the database's.
fn sqlstate(error: &sqlx::Error) -> Cow<'_, str> {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default()
}

#[async_trait]
impl Store for PostgresStore {
    fn database(&self) -> &str {
        &self.address
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        self.load_durable(&self.committing, wanted).await
    }

    async fn read_durable(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        let mut rows = self.load_durable(&self.reading_durable, &[wanted]).await?;
        Ok(rows.pop().expect("one row is wanted")?)
    }

    async fn read(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        let load =
            async |connection: &mut _| load_rows(connection, &[wanted], Loading::Visible).await;
        let mut rows = self.ask(&self.reading, load).await?;
        Ok(rows.pop().expect("one row is wanted")?)
    }

    async fn read_version(&self, wanted: Wanted<'_>, version: u64) -> Result<Row, ReadError> {
        match &self.replica {
            Some(replica) => replica.read(wanted, version).await,
            None => self.read(wanted).await,
        }
    }

    fn reads_at_once(&self) -> ReadsAtOnce {
        ReadsAtOnce { visible: READING as usize, durable: READING_DURABLE as usize, lists: LISTS }
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        self.change(changes).await
    }

    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        self.change_under_locks(wanted, decide).await
    }

    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        let ask = async |connection: &mut _| locked_rows(connection, resources).await;
        self.ask(&self.committing, ask).await
    }

    fn connection_epoch(&self) -> u64 {
        self.connections_made.load(Ordering::Relaxed)
    }

    async fn list(&self, page: &Page) -> Result<Listing, Unreachable> {
        let list = async |connection: &mut _| {
            let page = page.until(last_name(connection, page).await?);
            let listed = list_rows(connection, &page).await?;
            Ok(page.listing(listed))
        };
        self.ask(&self.reading, list).await
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        self.expect_standbys(&self.probing).await?;
        let probe = async |connection: &mut PgConnection| {
            probe(connection).await?;
            self.confirm(connection).await
        };
        let probed = self.ask(&self.probing, probe).await;
        if let Err(Unreachable(sqlx::Error::Configuration(_))) = probed {
            self.replaced_at.replace_all();
        }
        probed
    }
}
