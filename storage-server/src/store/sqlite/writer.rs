//! The connection that writes to an SQLite file.

use std::mem;

use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

use super::file::OpenedFile;

/// The connection that writes. It is replaced after a use that failed or was cut off.
///
/// When a commit fails, SQLite itself rolls back. But sqlx still counts the transaction, and begins no
/// other on this connection.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: SqliteConnection,
    options: SqliteConnectOptions,
    /// Whether the last use has not ended well.
    is_in_doubt: bool,
}

impl Writer {
    pub(super) fn new(connection: SqliteConnection, options: SqliteConnectOptions) -> Self {
        Self { connection, options, is_in_doubt: false }
    }

    /// Prepares the connection for a use, after which it must be [kept](Self::keep) or is replaced.
    pub(super) async fn prepare(&mut self, file: &OpenedFile) -> Result<(), sqlx::Error> {
        file.check()?;
        if mem::replace(&mut self.is_in_doubt, true) {
            let replacement = self.options.connect().await?;
            // The path may lead to another file by now.
            file.check()?;
            // The old connection is closed only now: the last one that is closed deletes the log.
            self.connection = replacement;
        }
        Ok(())
    }

    /// Keeps the connection for further uses. No transaction is open on it.
    pub(super) fn keep(&mut self) {
        self.is_in_doubt = false;
    }
}
