//! The lock service, as an argument.

mod held;
mod passed_on;
mod service;

use std::{process, time::Duration};

use clap::Args;
use lock_client::{
    Locks,
    etcd::Etcd,
    mariadb::MariaDb,
    postgres::Postgres,
    redis::Redis,
    redlock::{Redlock, operator::Operator},
    sqlite::Sqlite,
    zookeeper::ZooKeeper,
};
use rustix::system::uname;
use tokio::time::timeout;

pub use self::held::{HeldLocks, InvalidUrls};
pub(crate) use self::service::Service;
use crate::{
    acquisition::AcquireOptions,
    environment::is_under_run,
    exit_code,
    failure::Failure,
    signals::{ENDING, Signals},
    stderr,
    waiting::retrying,
};

/// How long the end of a command waits for the library's work in the background.
const BACKGROUND_PATIENCE: Duration = Duration::from_millis(100);
/// How long it waits at most for a release that the lock service doesn't carry out.
const RELEASE_PATIENCE: Duration = Duration::from_secs(30);

/// The lock service that the URLs name.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LockService {
    /// The lock service, such as redis://HOST, etcd://HOST,HOST or postgres://USER@HOST/DATABASE
    ///
    /// Redis:
    /// - one node: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
    /// - on a Unix socket: redis+unix:///SOCKET[?db=DATABASE&user=USER&pass=PASSWORD]
    /// - the primary that Sentinels name:
    ///   redis+sentinel://[[USER]:PASSWORD@]SENTINEL[:PORT],.../NAME[/DATABASE]
    /// - a Cluster: redis+cluster://[[USER]:PASSWORD@]NODE[:PORT],...
    /// - Redlock: give --locks once for each node of the cluster that `node init` started. Each
    ///   node is one Redis, on a host or a Unix socket. In the environment, the URLs are
    ///   separated by spaces.
    /// - With rediss instead of redis, the connections are encrypted (TLS).
    /// - valkey://, valkeys:// and valkey+unix:// mean the same as with redis.
    ///
    /// etcd, with all its members in one URL:
    /// - etcd://[USER:PASSWORD@]HOST[:PORT],..., or etcds:// with TLS
    ///
    /// ZooKeeper, with all its members in one URL; ROOT is the path of a node that exists:
    /// - zookeeper://[USER:PASSWORD@]HOST[:PORT],...[/ROOT], or zookeepers:// with TLS
    ///
    /// A database, once migrations/<database>/lock is applied to it:
    /// - postgres://[[USER[:PASSWORD]@]HOST[:PORT],...]/DATABASE[?sslmode=verify-full], or with
    ///   ?host=FOLDER for a Unix socket; what is left out is as in psql: PGHOST, PGPORT, PGUSER,
    ///   PGPASSWORD; of several hosts (?target_session_attrs=read-write), the primary is used
    /// - mariadb://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?ssl-mode=VERIFY_IDENTITY], or with
    ///   ?socket=FILE for a Unix socket; mysql:// means the same
    /// - sqlite:FILE, for the processes of one machine
    ///
    /// SSL_CERT_FILE names the certificates to trust. Settings follow a ?, with & between them:
    /// - tls-ca=FILE, tls-cert=FILE, tls-key=FILE: for Redis, etcd and ZooKeeper, the
    ///   authority to trust instead, and the client's certificate and key
    /// - db=DATABASE: for Redis, the database
    /// - sentinel-user=USER, sentinel-password=PASSWORD: the user at the Sentinels
    ///
    /// Set a password in the environment rather than in an argument, which ps shows.
    #[arg(
        long,
        global = true,
        verbatim_doc_comment,
        env = "FENCED_LOCKS",
        hide_env_values = true,
        value_name = "URL"
    )]
    locks: Vec<String>,

    /// How long one answer of the lock service may take [default: 500ms]
    ///
    /// With Redlock, it is the time for the votes of the nodes. For a lock service that is far away,
    /// take twice the time of a round trip, or more. The other time
    /// limits grow with it.
    #[arg(long, global = true, value_name = "DURATION")]
    answer_timeout: Option<humantime::Duration>,

    /// How long the counters of this process' locks are kept.
    #[arg(skip)]
    keep_counter_for: Option<humantime::Duration>,

    /// The text that `status` shows beside a lock of this process.
    #[arg(skip)]
    label: Option<String>,
}

/// A command with a lock service, whose help shows its options.
#[derive(Args, Debug)]
pub(crate) struct On<T: Args> {
    #[command(flatten)]
    pub(crate) lock_service: LockService,

    #[command(flatten)]
    pub(crate) command: T,
}

impl LockService {
    /// Makes a client of the lock service. It connects with its first request.
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        let service = self.service()?;
        if self.keep_counter_for.is_some() && !matches!(service, Service::Redis(_)) {
            let reason = format!("--keep-counter-for is for one Redis, not for {}", service.name());
            return Err(Failure::usage(reason));
        }
        let label = &self.label();
        Ok(match service {
            Service::Redis(url) => {
                let mut redis = self.redis(url)?.label(label);
                if let Some(retention) = self.keep_counter_for {
                    redis = redis.keep_counters_for(*retention);
                }
                Locks::new(redis)
            }
            Service::Redlock(urls) => {
                Locks::new(self.limited(Redlock::open(urls)?, Redlock::answer_within))
            }
            Service::Etcd(url) => Locks::new(self.etcd(url)?),
            Service::ZooKeeper(url) => Locks::new(self.zookeeper(url)?),
            Service::Postgres(url) => {
                let postgres = Postgres::open(url)?.label(label);
                Locks::new(self.limited(postgres, Postgres::answer_within))
            }
            Service::MariaDb(url) => {
                let mariadb = MariaDb::open(url)?.label(label);
                Locks::new(self.limited(mariadb, MariaDb::answer_within))
            }
            Service::Sqlite(url) => {
                let sqlite = Sqlite::open(url)?.label(label);
                Locks::new(self.limited(sqlite, Sqlite::answer_within))
            }
        })
    }

    pub(crate) fn service(&self) -> Result<Service<'_>, Failure> {
        let advice = if is_under_run() {
            "this runs under lock-client run, which passes on no URL with a password; set \
             FENCED_LOCKS again, or give --locks"
        } else {
            "set FENCED_LOCKS, or give --locks"
        };
        let named = Service::parse(&self.urls())?;
        named.ok_or_else(|| Failure::usage(format!("no lock service is named: {advice}")))
    }

    fn redis(&self, url: &str) -> Result<Redis, Failure> {
        Ok(self.limited(Redis::open(url)?, Redis::answer_within))
    }

    pub(crate) fn etcd(&self, url: &str) -> Result<Etcd, Failure> {
        Ok(self.limited(Etcd::open(url)?, Etcd::answer_within))
    }

    pub(crate) fn zookeeper(&self, url: &str) -> Result<ZooKeeper, Failure> {
        Ok(self.limited(ZooKeeper::open(url)?, ZooKeeper::answer_within))
    }

    /// Limits the time for an answer, if a limit is given.
    pub(crate) fn limited<T>(&self, client: T, answer_within: impl FnOnce(T, Duration) -> T) -> T {
        match self.answer_timeout {
            Some(limit) => answer_within(client, *limit),
            None => client,
        }
    }

    /// Applies the options for the locks of this process.
    pub(crate) fn with_options(&self, options: &AcquireOptions) -> Self {
        let (label, keep_counter_for) = (options.label.clone(), options.keep_counter_for);
        Self { label, keep_counter_for, ..self.clone() }
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
    fn urls(&self) -> Vec<&str> {
        self.locks.iter().flat_map(|urls| urls.split_whitespace()).collect()
    }

    /// The URLs for a command within this one; `None` if one contains a password, or can't be used.
    pub(crate) fn urls_without_password(&self) -> Option<String> {
        self.service().ok()?.urls_without_password()
    }

    /// Makes the clients that list the locks: one for each node of Redlock, and otherwise one.
    pub(crate) fn servers(&self) -> Result<Vec<Locks>, Failure> {
        match self.service()? {
            Service::Redlock(urls) => {
                urls.into_iter().map(|url| Ok(Locks::new(self.redis(url)?))).collect()
            }
            _ => Ok(vec![self.locks()?]),
        }
    }

    pub(crate) fn operator(&self) -> Result<Operator, Failure> {
        let urls = match self.service()? {
            Service::Redlock(urls) => urls,
            Service::Redis(url) => vec![url],
            other => {
                let reason = format!("this is for the nodes of Redlock, not for {}", other.name());
                return Err(Failure::usage(reason));
            }
        };
        Ok(self.limited(Operator::new(&urls)?, Operator::answer_within))
    }

    /// Works with the locks, and then waits a moment for the library's work in the background,
    /// which ends with this process. It waits longer for a release that is repeated, until a signal
    /// comes.
    pub(crate) async fn with_locks<T>(
        &self,
        work: impl AsyncFnOnce(&Locks) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let locks = self.locks()?;
        let result = work(&locks).await;
        let mut signals = Signals::listen(ENDING)?;
        // A lock service that is slower than this does not hold up the end.
        if timeout(BACKGROUND_PATIENCE, locks.wait_for_background()).await.is_err()
            // Then there is no lock that must be released, only a try to undo.
            && !matches!(result, Err(Failure::Message(exit_code::UNAVAILABLE, _) | Failure::Interrupted(_)))
            && let Some(unanswered) = locks.unanswered()
        {
            stderr::print(retrying(&unanswered));
            tokio::select! {
                _ = timeout(RELEASE_PATIENCE, locks.wait_for_background()) => {}
                received = signals.next() => return Err(received.into()),
            }
        }
        result
    }
}
