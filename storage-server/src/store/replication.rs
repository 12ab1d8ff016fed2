//! What a store does with the standbys of its database.

use std::{fmt, num::NonZeroU32};

use clap::Args;

/// What a store does with the standbys of a PostgreSQL. By default, PostgreSQL's own settings say what a
/// commit waits for, and the primary answers all reads.
#[derive(Clone, Default, PartialEq, Eq, Args)]
pub struct Replication {
    /// How many synchronous standbys of PostgreSQL must have each write before it is answered. While
    /// fewer stream, the server is not ready, and takes no write.
    #[arg(long, env = "FENCED_REQUIRE_SYNC_STANDBY", value_name = "NUMBER")]
    pub require_sync_standby: Option<NonZeroU32>,

    /// A replica of the database, for reads with If-Version-At-Least.
    #[arg(long, env = "FENCED_READ_URL", hide_env_values = true, value_name = "URL")]
    pub read_url: Option<String>,
}

/// The URL may have a password.
impl fmt::Debug for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read_url = self.read_url.as_ref().map(|_| "…");
        f.debug_struct("Replication")
            .field("require_sync_standby", &self.require_sync_standby)
            .field("read_url", &read_url)
            .finish()
    }
}
