//! The lock service, as an argument.

use std::time::Duration;

use ::redis::IntoConnectionInfo;
use clap::Args;
use lock_client::{
    Locks,
    redis::Redis,
    redlock::{Redlock, operator::Operator},
};
use tokio::time::timeout;

use crate::failure::Failure;

/// How long the end of a command waits for the library's work in the background.
const BACKGROUND_PATIENCE: Duration = Duration::from_millis(100);

/// The lock service: one Redis, or the nodes of a Redlock cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct LockService {
    /// The Redis that keeps the locks, such as redis://HOST[:PORT]; or three or five (Redlock)
    ///
    /// - one node: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
    /// - on a Unix socket: redis+unix:///SOCKET[?db=DATABASE&user=USER&pass=PASSWORD]
    /// - the primary that Sentinels name:
    ///   redis+sentinel://[[USER]:PASSWORD@]SENTINEL[:PORT],.../NAME[/DATABASE]
    /// - a Cluster: redis+cluster://[[USER]:PASSWORD@]NODE[:PORT],...
    ///
    /// With rediss instead of redis, the connections are encrypted (TLS); SSL_CERT_FILE names
    /// the certificates to trust. Set a password in the environment rather than in an
    /// argument, which ps shows.
    ///
    /// Redlock: give --redis once for each node of the cluster that `node init` started. Each
    /// node is one Redis, on a host or a Unix socket. In the environment, the URLs are
    /// separated by spaces.
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
    /// Makes a client of the lock service. It connects with its first request.
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        match &self.urls()[..] {
            [] => {
                Err(Failure::Usage("no Redis is named: set FENCED_REDIS, or give --redis".into()))
            }
            [url] => Ok(Locks::new(Redis::open(url)?)),
            urls => Ok(Locks::from(Redlock::open(urls)?)),
        }
    }

    /// The URLs. In the environment, white space separates them.
    pub(crate) fn urls(&self) -> Vec<&str> {
        self.redis.iter().flat_map(|urls| urls.split_whitespace()).collect()
    }

    /// The identity of the lock service: its servers, sorted, without users and passwords.
    pub(crate) fn identity(&self) -> String {
        servers(&self.urls())
    }

    /// Makes an operator of the nodes of a Redlock cluster.
    pub(crate) fn operator(&self) -> Result<Operator, Failure> {
        Ok(Operator::new(&self.urls())?)
    }

    /// Works with the locks, and then waits a moment for the library's work in the background,
    /// which ends with this process.
    pub(crate) async fn with_locks<T>(
        &self,
        work: impl AsyncFnOnce(&Locks) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let locks = self.locks()?;
        let result = work(&locks).await;
        // A lock service that is slower than this does not hold up the end.
        let _ = timeout(BACKGROUND_PATIENCE, locks.wait_for_background()).await;
        result
    }
}

fn servers(urls: &[&str]) -> String {
    let mut servers: Vec<_> = urls.iter().map(|url| server(url)).collect();
    servers.sort();
    servers.join(" ")
}

/// The server or servers that a URL names, without the user and the password.
fn server(url: &str) -> String {
    match url.into_connection_info() {
        Ok(info) => format!("{}/{}", info.addr(), info.redis_settings().db()),
        // Sentinels, or the nodes of a Cluster.
        Err(_) => {
            let (_, rest) = url.split_once("://").unwrap_or_default();
            let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
            let hosts = hosts.rsplit('@').next().unwrap_or_default();
            let mut hosts: Vec<_> = hosts.split(',').collect();
            hosts.sort_unstable();
            format!("{}/{path}", hosts.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_has_no_password_and_no_order() {
        for (urls, identity) in [
            ("redis://user:secret@host/3", "host:6379/3"),
            ("redis+unix:///tmp/redis.sock?db=1&pass=secret", "/tmp/redis.sock/1"),
            ("redis+sentinel://u:secret@s2,s1:7/locks/3", "s1:7,s2/locks/3"),
            ("redis+cluster://:secret@n1:7000,n2", "n1:7000,n2/"),
            ("redis://n2 redis://:secret@n1", "n1:6379/0 n2:6379/0"),
        ] {
            assert_eq!(servers(&urls.split(' ').collect::<Vec<_>>()), identity);
        }
    }
}
