//! The settings that decide whether an acknowledged write is durable.

use serde::Serialize;

/// A database with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Setting {
    SqliteFull,
    SqliteNormal,
    SqliteOff,
    SqliteCrash,
    SqliteCrashNormal,
    PostgresOn,
    PostgresCommitOff,
    PostgresFsyncOff,
}

impl Setting {
    pub(super) const ALL: [Self; 8] = [
        Self::SqliteFull,
        Self::SqliteNormal,
        Self::SqliteOff,
        Self::SqliteCrash,
        Self::SqliteCrashNormal,
        Self::PostgresOn,
        Self::PostgresCommitOff,
        Self::PostgresFsyncOff,
    ];

    /// Whether the storage server has it. It accepts no other.
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::SqliteFull | Self::SqliteCrash | Self::PostgresOn)
    }

    /// Whether the server crashes before it syncs, and another one answers repeated claims before the
    /// power fails.
    pub(super) fn crashes_first(self) -> bool {
        matches!(self, Self::SqliteCrash | Self::SqliteCrashNormal)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SqliteFull => "SQLite, synchronous=FULL (the server's)",
            Self::SqliteNormal => "SQLite, synchronous=NORMAL",
            Self::SqliteOff => "SQLite, synchronous=OFF",
            Self::SqliteCrash => "SQLite after a crash, FULL (the server's)",
            Self::SqliteCrashNormal => "SQLite after a crash, NORMAL",
            Self::PostgresOn => "PostgreSQL, synchronous_commit=on (the server's)",
            Self::PostgresCommitOff => "PostgreSQL, synchronous_commit=off",
            Self::PostgresFsyncOff => "PostgreSQL, fsync=off",
        }
    }
}
