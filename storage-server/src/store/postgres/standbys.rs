//! Whether enough synchronous standbys have what was committed.
//!
//! PostgreSQL alone doesn't promise that. An administrator, or Patroni without `synchronous_mode_strict`,
//! may change which standbys a commit waits for while it waits. A wait that is cancelled ends with a
//! warning, and the commit looks like any other.

use std::{
    io,
    num::NonZeroU32,
    sync::Mutex,
    time::{Duration, Instant},
};

use sqlx::PgConnection;
use tokio::time::sleep;

use crate::store::from_row::from_row;

/// For how long standbys that have streamed are assumed to stream still. The look after a commit shows
/// whether that was wrong.
const ASSUMED_STREAMING: Duration = Duration::from_millis(500);
/// The pauses between looks at standbys that lag behind a commit.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How many synchronous standbys must have each change before it is answered.
#[derive(Debug)]
pub(super) struct RequiredStandbys {
    number: NonZeroU32,
    /// When that many have streamed last.
    seen: Mutex<Option<Instant>>,
}

impl RequiredStandbys {
    pub(super) fn new(number: NonZeroU32) -> Self {
        Self { number, seen: Mutex::new(None) }
    }

    /// Whether enough of them have streamed just now.
    pub(super) fn were_seen(&self) -> bool {
        let seen = *self.seen.lock().expect("no panic while it is held");
        seen.is_some_and(|at| at.elapsed() < ASSUMED_STREAMING)
    }

    /// Takes note of a look.
    ///
    /// # Errors
    /// The reason, if fewer stream.
    pub(super) fn admit(&self, standbys: &Standbys) -> Result<(), String> {
        let are_enough = standbys.streaming >= i64::from(self.number.get());
        *self.seen.lock().expect("no panic while it is held") = are_enough.then(Instant::now);
        if are_enough {
            return Ok(());
        }
        Err(format!(
            "the number of synchronous standbys that stream is {}, and --require-sync-standby is {}",
            standbys.streaming, self.number
        ))
    }

    /// Waits until enough of them have on their disks what this session has committed.
    ///
    /// # Errors
    /// If fewer stream, or the look fails. Every error is one of a connection, so that nobody takes it
    /// for that of a statement which was rolled back.
    pub(super) async fn confirm(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        // What this session has committed is before what the primary has on its disk now.
        let mut standbys = Standbys::look(connection, None).await.map_err(unconfirmed)?;
        let mut pause = FIRST_PAUSE;
        loop {
            self.admit(&standbys).map_err(unconfirmed)?;
            if standbys.flushed >= i64::from(self.number.get()) {
                return Ok(());
            }
            // Commits of other sessions have moved the position since: wait until the standbys have it.
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let position = Some(standbys.position.as_str());
            standbys = Standbys::look(connection, position).await.map_err(unconfirmed)?;
        }
    }
}

fn unconfirmed(reason: impl ToString) -> sqlx::Error {
    let reason = reason.to_string();
    sqlx::Error::Io(io::Error::other(format!("the standbys did not confirm a commit: {reason}")))
}

/// The synchronous standbys, as the primary sees them.
#[derive(Debug)]
pub(super) struct Standbys {
    /// How many stream.
    streaming: i64,
    /// How many of these have everything up to the position on their disks.
    flushed: i64,
    /// A position in the primary's log.
    position: String,
}

from_row!(Standbys { streaming, flushed, position });

impl Standbys {
    /// Looks at them, and compares them with a position; without one, with that of the primary's disk.
    pub(super) async fn look(
        connection: &mut PgConnection,
        position: Option<&str>,
    ) -> Result<Self, sqlx::Error> {
        // The view pg_stat_replication would join this function with all sessions.
        sqlx::query_as(
            r#"
            with compared as materialized (
                select coalesce($1::pg_lsn, pg_current_wal_flush_lsn()) as position
            ), standby as materialized (
                select flush_lsn
                from pg_stat_get_wal_senders()
                where state = 'streaming' and sync_state in ('sync', 'quorum')
            )
            select (select count(*) from standby) as streaming,
                (select count(*) from standby where flush_lsn >= position) as flushed,
                position::text as position
            from compared
            "#,
        )
        .bind(position)
        .fetch_one(connection)
        .await
    }
}

/// Why the session's role doesn't see standbys, if so. All that it sees then is that they exist.
pub(super) async fn hidden_standbys(
    connection: &mut PgConnection,
) -> Result<Option<String>, sqlx::Error> {
    let (sees, role): (bool, String) = sqlx::query_as(
        "select pg_has_role('pg_read_all_stats', 'usage'), quote_ident(current_user)",
    )
    .fetch_one(connection)
    .await?;
    Ok((!sees).then(|| {
        format!(
            "the role {role} doesn't see whether standbys have a commit, which \
             --require-sync-standby needs: grant pg_read_all_stats to {role}"
        )
    }))
}
