//! Where the locks are.

use std::time::Duration;

use tokio::time::timeout;

use super::Failure;
use lock_client::{
    Locks,
    redis::{InvalidRedisUrl, Redis},
    redlock::{InvalidNodes, Redlock, operator::Operator},
};

/// How long the end of a command waits for what goes on in the background.
const SETTLING: Duration = Duration::from_millis(100);

/// Where the locks are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LockService {
    /// The Redis that keeps the locks, such as redis://HOST[:PORT]; or three or five (Redlock)
    ///
    /// - one node: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
    /// - on a Unix socket: redis+unix:///SOCKET[?db=DATABASE&user=USER&pass=PASSWORD]
    /// - a primary that Sentinels know:
    ///   redis+sentinel://[[USER]:PASSWORD@]SENTINEL[:PORT],.../NAME[/DATABASE]
    /// - a Cluster: redis+cluster://[[USER]:PASSWORD@]NODE[:PORT],...
    ///
    /// With rediss for redis, the connections are encrypted (TLS); SSL_CERT_FILE names
    /// certificates to trust. A password is better given in the environment, where ps
    /// doesn't show it.
    ///
    /// Redlock: --redis for each node of a cluster that `node init` has started, all of them;
    /// each is one node, or on a Unix socket. In the environment they are separated by spaces.
    #[arg(
        long,
        verbatim_doc_comment,
        env = "FENCED_REDIS",
        hide_env_values = true,
        value_name = "URL",
        required = true
    )]
    redis: Vec<String>,
}

impl LockService {
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        match &self.urls()[..] {
            [] => {
                Err(Failure::Usage("no Redis is named: set FENCED_REDIS, or give --redis".into()))
            }
            [url] => Ok(Locks::new(Redis::open(url).map_err(|error| wrong_url(&error))?)),
            urls => Ok(Locks::from(Redlock::open(urls)?)),
        }
    }

    /// The URLs, which white space separates in the environment.
    pub(crate) fn urls(&self) -> Vec<&str> {
        self.redis.iter().flat_map(|urls| urls.split_whitespace()).collect()
    }

    /// The nodes of a cluster.
    pub(crate) fn operator(&self) -> Result<Operator, Failure> {
        Ok(Operator::new(&self.urls())?)
    }

    /// Does something with the locks, and then waits a moment until what goes on in the background is
    /// done: with this process, it ends.
    pub(crate) async fn with_locks<T>(
        &self,
        work: impl AsyncFnOnce(&Locks) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let locks = self.locks()?;
        let result = work(&locks).await;
        // Who doesn't answer for so long isn't waited for.
        let _ = timeout(SETTLING, locks.wait_for_background()).await;
        result
    }
}

fn wrong_url(error: &InvalidRedisUrl) -> Failure {
    Failure::Usage(format!(
        "{error}; a URL looks like redis://HOST[:PORT], and several are separated by spaces (one \
         within a URL is %20): see --help"
    ))
}

impl From<InvalidNodes> for Failure {
    fn from(error: InvalidNodes) -> Self {
        match error {
            InvalidNodes::Url(error) => wrong_url(&error),
            error => Self::Usage(error.to_string()),
        }
    }
}
