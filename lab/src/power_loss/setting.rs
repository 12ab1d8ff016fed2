//! The settings that decide whether an acknowledged write is durable.

use serde::Serialize;

/// A database with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Setting {
    SqliteFull,
    SqliteNormal,
    SqliteOff,
    PostgresOn,
    PostgresCommitOff,
    PostgresFsyncOff,
}

impl Setting {
    pub(super) const ALL: [Self; 6] = [
        Self::SqliteFull,
        Self::SqliteNormal,
        Self::SqliteOff,
        Self::PostgresOn,
        Self::PostgresCommitOff,
        Self::PostgresFsyncOff,
    ];

    /// Whether the storage server has it. It accepts no other.
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::SqliteFull | Self::PostgresOn)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SqliteFull => "SQLite, synchronous=FULL (the server's)",
            Self::SqliteNormal => "SQLite, synchronous=NORMAL",
            Self::SqliteOff => "SQLite, synchronous=OFF",
            Self::PostgresOn => "PostgreSQL, synchronous_commit=on (the server's)",
            Self::PostgresCommitOff => "PostgreSQL, synchronous_commit=off",
            Self::PostgresFsyncOff => "PostgreSQL, fsync=off",
        }
    }
}
