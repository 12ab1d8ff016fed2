//! How rows are changed: in one statement, or under their locks.

use sqlx::{Executor, PgConnection};
use tokio::time::Instant;

use super::{
    LOCK_NOT_AVAILABLE, NoAnswer, PostgresStore, answer_until, sqlstate,
    statements::{allow_sending, apply_changes, await_standbys, lock_and_load},
};
use crate::store::{
    Change, Decide, Wanted, changes_between,
    error::{ANSWER_TIMEOUT, ApplyError, UnreadableRow},
};

impl PostgresStore {
    /// Changes the rows that are as expected, in one statement.
    pub(super) async fn change(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        self.expect_standbys(&self.committing).await.map_err(ApplyError::Unchanged)?;
        let taken = self.take(&self.committing).await;
        let (mut connection, mut primary) = taken.map_err(ApplyError::Unchanged)?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let applying = async {
            let applied = apply_changes(&mut connection, changes).await?;
            if applied.contains(&true) {
                self.confirm(&mut connection).await?;
            }
            Ok(applied)
        };
        let answered = answer_until(deadline, &mut primary, applying).await;
        self.keep_or_close(&self.committing, connection, &primary, answered).map_err(apply_error)
    }

    /// A transaction that locks the rows before it loads them, until it has changed them. If this
    /// server is paused in between, PostgreSQL itself soon ends the transaction.
    pub(super) async fn change_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        self.expect_standbys(&self.committing).await.map_err(ApplyError::Unchanged)?;
        let taken = self.take(&self.committing).await;
        let (mut connection, mut primary) = taken.map_err(ApplyError::Unchanged)?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let changing = async {
            let changed = lock_and_change(&mut connection, wanted, decide).await;
            // Without a change, no row that was only locked is inserted either.
            let rolled_back = match changed {
                Ok(Changed::All) => Ok(()),
                _ => connection.execute("rollback").await.map(drop),
            };
            // Whatever failed before, a session that may still be in its transaction is closed.
            rolled_back.map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
            changed
        };
        let mut answered = answer_until(deadline, &mut primary, changing).await;
        // The primary may have been replaced while the last answer came.
        if primary.is_replaced() {
            answered = Err(NoAnswer::OldPrimary);
        }
        let is_changed = match answered {
            Ok(Ok(Changed::All)) => true,
            Ok(Ok(Changed::Nothing)) => false,
            answered => {
                let ended = self.keep_or_close(&self.committing, connection, &primary, answered);
                return match ended.map_err(apply_error) {
                    Ok(Changed::Unreadable(unreadable)) => Err(unreadable.into()),
                    Ok(_) => Ok(false),
                    // Without a commit, nothing is changed.
                    Err(ApplyError::Unknown(error)) => Err(ApplyError::Unchanged(error)),
                    Err(error) => Err(error),
                };
            }
        };
        let ending = async {
            match is_changed {
                true => connection.execute("commit").await.map(drop)?,
                // It was decided on rows that were only loaded.
                false => await_standbys(&mut connection, self.durability()).await?,
            }
            self.confirm(&mut connection).await
        };
        let ended = answer_until(deadline, &mut primary, ending).await;
        let ended = self.keep_or_close(&self.committing, connection, &primary, ended);
        let error = if is_changed { apply_error } else { ApplyError::Unchanged };
        ended.map(|()| true).map_err(error)
    }
}

/// What a transaction has changed that is not committed yet.
enum Changed {
    All,
    /// The transaction changes no row.
    Nothing,
    /// A row was no longer as it was loaded.
    NotAll,
    Unreadable(UnreadableRow),
}

/// Begins a transaction that locks and loads the rows, and changes them as `decide` says.
async fn lock_and_change(
    connection: &mut PgConnection,
    wanted: &[Wanted<'_>],
    decide: Decide<'_>,
) -> Result<Changed, sqlx::Error> {
    let loaded = lock_and_load(connection, wanted).await?;
    let before = match loaded.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(rows) => rows,
        Err(unreadable) => return Ok(Changed::Unreadable(unreadable)),
    };
    let after = decide(&before);
    let changes = changes_between(wanted, &before, &after);
    if changes.is_empty() {
        return Ok(Changed::Nothing);
    }
    allow_sending(connection, &changes).await?;
    let applied = apply_changes(connection, &changes).await?;
    Ok(if applied.contains(&false) { Changed::NotAll } else { Changed::All })
}

/// What a failed statement left behind, by its SQLSTATE.
fn apply_error(error: sqlx::Error) -> ApplyError {
    match &*sqlstate(&error) {
        LOCK_NOT_AVAILABLE => ApplyError::Blocked,
        // serialization_failure, deadlock_detected; unique_violation: a rival has inserted a row
        "40001" | "40P01" | "23505" => ApplyError::LostRace,
        // No SQLSTATE: the connection is lost, perhaps after the commit.
        "" => ApplyError::Unknown(error),
        // The server crashed or was shut down, perhaps after the commit; or 40003, which is
        // statement_completion_unknown.
        state
            if ["08", "40003", "57P", "58", "XX"].iter().any(|class| state.starts_with(class)) =>
        {
            ApplyError::Unknown(error)
        }
        // Every other error has rolled the statement back.
        _ => ApplyError::Unchanged(error),
    }
}
