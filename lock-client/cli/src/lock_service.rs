//! The lock service, as an argument.

use std::{process, time::Duration};

use ::redis::IntoConnectionInfo;
use clap::Args;
use lock_client::{
    Locks,
    redis::Redis,
    redlock::{Redlock, operator::Operator},
};
use rustix::system::uname;
use tokio::time::timeout;

use crate::{environment::is_under_run, failure::Failure};

/// How long the end of a command waits for the library's work in the background.
const BACKGROUND_PATIENCE: Duration = Duration::from_millis(100);

/// The lock service: one Redis, or the nodes of a Redlock cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct LockService {
    /// The lock service, such as redis://HOST[:PORT]; or three or five (Redlock)
    ///
    /// - one node: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
    /// - on a Unix socket: redis+unix:///SOCKET[?db=DATABASE&user=USER&pass=PASSWORD]
    /// - the primary that Sentinels name:
    ///   redis+sentinel://[[USER]:PASSWORD@]SENTINEL[:PORT],.../NAME[/DATABASE]
    /// - a Cluster: redis+cluster://[[USER]:PASSWORD@]NODE[:PORT],...
    ///
    /// With rediss instead of redis, the connections are encrypted (TLS); SSL_CERT_FILE names
    /// the certificates to trust. Settings follow a ?, with & between them:
    /// - tls-ca=FILE, tls-cert=FILE, tls-key=FILE: the authority to trust instead, and the
    ///   client's certificate and key
    /// - sentinel-user=USER, sentinel-password=PASSWORD: the user at the Sentinels
    ///
    /// Set a password in the environment rather than in an argument, which ps shows.
    ///
    /// Redlock: give --locks once for each node of the cluster that `node init` started. Each
    /// node is one Redis, on a host or a Unix socket. In the environment, the URLs are
    /// separated by spaces.
    #[arg(
        long,
        verbatim_doc_comment,
        env = "FENCED_LOCKS",
        hide_env_values = true,
        value_name = "URL"
    )]
    locks: Vec<String>,

    /// How long one answer of Redis may take, or the votes of Redlock's nodes [default: 500ms]
    ///
    /// For a Redis that is far away, take twice the time of a round trip, or more. The other time
    /// limits grow with it.
    #[arg(long, value_name = "DURATION")]
    answer_timeout: Option<humantime::Duration>,

    /// How long the counters of this process' locks are kept.
    #[arg(skip)]
    keep_counter_for: Option<humantime::Duration>,

    /// The text that `status` shows beside a lock of this process.
    #[arg(skip)]
    label: Option<String>,
}

impl LockService {
    /// Makes a client of the lock service. It connects with its first request.
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        self.reject_commas()?;
        match &self.urls()[..] {
            [] if is_under_run() => Err(Failure::Usage(
                "no lock service is named: this runs under lock-client run, which passes on no URL \
                 with a password; set FENCED_LOCKS again, or give --locks"
                    .into(),
            )),
            [] => Err(Failure::Usage(
                "no lock service is named: set FENCED_LOCKS, or give --locks".into(),
            )),
            [url] => {
                let mut redis = self.redis(url)?.label(&self.label());
                if let Some(retention) = self.keep_counter_for {
                    redis = redis.keep_counters_for(*retention);
                }
                Ok(Locks::new(redis))
            }
            urls => {
                self.reject_options_of_one_redis()?;
                let redlock = Redlock::open(urls)?;
                Ok(Locks::from(match self.answer_timeout {
                    Some(timeout) => redlock.answer_within(*timeout),
                    None => redlock,
                }))
            }
        }
    }

    /// Makes a client of one Redis.
    pub(crate) fn redis(&self, url: &str) -> Result<Redis, Failure> {
        let redis = Redis::open(url)?;
        Ok(match self.answer_timeout {
            Some(timeout) => redis.answer_within(*timeout),
            None => redis,
        })
    }

    fn reject_options_of_one_redis(&self) -> Result<(), Failure> {
        if self.keep_counter_for.is_none() {
            return Ok(());
        }
        Err(Failure::Usage("--keep-counter-for is for one Redis, not for Redlock".into()))
    }

    /// Keeps the counters of this process' locks for so long after the locks.
    pub(crate) fn keep_counter_for(self, retention: Option<humantime::Duration>) -> Self {
        Self { keep_counter_for: retention, ..self }
    }

    /// Puts a text before the host and the process id, which label the locks of this process.
    pub(crate) fn with_label(self, label: Option<String>) -> Self {
        Self { label, ..self }
    }

    fn label(&self) -> String {
        let system = uname();
        let process = format!("{} (pid {})", system.nodename().to_string_lossy(), process::id());
        match &self.label {
            Some(label) => format!("{label} on {process}"),
            None => process,
        }
    }

    /// The URLs. In the environment, white space separates them.
    pub(crate) fn urls(&self) -> Vec<&str> {
        self.locks.iter().flat_map(|urls| urls.split_whitespace()).collect()
    }

    /// Rejects URLs with commas between them. They would name one server.
    fn reject_commas(&self) -> Result<(), Failure> {
        if self.urls().into_iter().any(has_commas) {
            return Err(Failure::Usage("separate the URLs of nodes by spaces".to_owned()));
        }
        Ok(())
    }

    /// The identity of the lock service: its servers, sorted, without users and passwords.
    pub(crate) fn identity(&self) -> String {
        servers(&self.urls())
    }

    /// Makes an operator of the nodes of a Redlock cluster.
    pub(crate) fn operator(&self) -> Result<Operator, Failure> {
        self.reject_commas()?;
        self.reject_options_of_one_redis()?;
        let operator = Operator::new(&self.urls())?;
        Ok(match self.answer_timeout {
            Some(timeout) => operator.answer_within(*timeout),
            None => operator,
        })
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

/// Whether a URL of one node is several URLs, or names several hosts. A password may have a comma.
fn has_commas(url: &str) -> bool {
    let Some(("redis" | "rediss", rest)) = url.split_once("://") else { return false };
    let hosts = rest.rsplit('@').next().unwrap_or_default();
    let hosts = hosts.split(['/', '?']).next().unwrap_or_default();
    hosts.contains(',') || rest.contains(",redis://") || rest.contains(",rediss://")
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
            // The settings may have a password.
            let rest = rest.split('?').next().unwrap_or_default();
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
    fn urls_with_commas_between_them_are_found() {
        for url in [
            "redis://a,redis://b,redis://c",
            "redis://a:6379,b:6379,c:6379/1",
            "rediss://:x@a/0,rediss://:y@b/0",
        ] {
            assert!(has_commas(url), "{url}");
        }
        for url in [
            "redis://a:6379/0",
            "redis://:a,b@host",
            "redis+unix:///tmp/a,b",
            "redis+sentinel://a,b/locks",
            "redis+cluster://a,b",
        ] {
            assert!(!has_commas(url), "{url}");
        }
    }

    #[test]
    fn identity_has_no_password_and_no_order() {
        for (urls, identity) in [
            ("redis://user:secret@host/3", "host:6379/3"),
            ("redis+unix:///tmp/redis.sock?db=1&pass=secret", "/tmp/redis.sock/1"),
            ("redis+sentinel://u:secret@s2,s1:7/locks/3", "s1:7,s2/locks/3"),
            ("redis+cluster://:secret@n1:7000,n2", "n1:7000,n2/"),
            ("redis+sentinel://s1/locks?sentinel-password=secret", "s1/locks"),
            ("redis+cluster://n1,n2?tls-ca=/a/b", "n1,n2/"),
            ("redis://n2 redis://:secret@n1", "n1:6379/0 n2:6379/0"),
        ] {
            assert_eq!(servers(&urls.split(' ').collect::<Vec<_>>()), identity);
        }
    }
}
