//! The settings of PostgreSQL that a server needs.

use sqlx::{Executor, FromRow, PgConnection};

use crate::store::from_row::from_row;

/// The settings of a session, and of its PostgreSQL.
#[derive(Debug)]
pub(super) struct Settings {
    is_standby: bool,
    fsync: String,
    encoding: String,
    synchronous_commit: String,
}

from_row!(Settings { is_standby, fsync, encoding, synchronous_commit });

/// A setting that a server needs.
#[derive(Debug)]
pub(super) struct Needed {
    pub(super) name: &'static str,
    pub(super) found: String,
    /// Why the server can't use what was found, if so.
    pub(super) reason: Option<String>,
}

impl Settings {
    /// Asks in a single message, so that a pooler can't answer from two sessions.
    pub(super) async fn ask(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let ask = r#"
            select pg_is_in_recovery() as is_standby,
                current_setting('fsync') as fsync,
                current_setting('server_encoding') as encoding,
                current_setting('synchronous_commit') as synchronous_commit
        "#;
        Self::from_row(&connection.fetch_one(sqlx::raw_sql(ask)).await?)
    }

    /// What only a server needs, or only its session shows.
    pub(super) fn own(&self) -> [Needed; 2] {
        let [_, _, encoding, session] = self.needed();
        [encoding, session]
    }

    /// What a server needs, with what is wrong.
    fn needed(&self) -> [Needed; 4] {
        let Self { is_standby, fsync, encoding, synchronous_commit: commit } = self;
        let role = if *is_standby { "a standby" } else { "a primary" };
        let needed = |name, found: &str, is_wrong: bool, reason: &str| Needed {
            name,
            found: found.to_owned(),
            reason: is_wrong.then(|| reason.to_owned()),
        };
        let weak_commit = format!(
            "its sessions have synchronous_commit={commit}, and would answer before a write is \
             durable. A pooler that drops the startup parameter `options` does that: connect without it"
        );
        [
            needed("primary", role, *is_standby, "it is a standby, which takes no writes"),
            needed(
                "fsync",
                fsync,
                fsync != "on",
                "PostgreSQL runs with fsync=off, and would lose fences in a crash",
            ),
            needed(
                "encoding",
                encoding,
                encoding != "UTF8",
                "its encoding is not UTF8, so it can't hold every name",
            ),
            // The session asked for `on`.
            needed(
                "session",
                &format!("synchronous_commit is {commit}"),
                !["on", "remote_apply"].contains(&commit.as_str()),
                &weak_commit,
            ),
        ]
    }

    /// Why the database would not keep fences safely, if so.
    pub(super) fn unsafe_reason(&self) -> Option<String> {
        self.needed().into_iter().find_map(|needed| needed.reason)
    }
}
