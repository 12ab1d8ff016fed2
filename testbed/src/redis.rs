//! Private Redis servers: one alone, a replica, one with Sentinels, a Cluster, the nodes of Redlock.

mod clock;
mod cluster;
mod listener;
mod nodes;
mod replica;
mod sentinels;
mod tls;

use std::{net::SocketAddr, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, bail};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, FromRedisValue, IntoConnectionInfo,
    aio::MultiplexedConnection,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use self::listener::{Door, Listener};
pub use self::{
    cluster::RedisCluster,
    nodes::{NodeKind, RedlockNodes},
    replica::Replica,
    sentinels::Sentinels,
};
use crate::process::Process;
use crate::{installed, program::temporary_folder};

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an answer may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often other ports are tried when somebody else was faster to take one.
const PORT_ATTEMPTS: usize = 20;

/// A Redis of our own, in a folder of its own. It always has a Unix socket.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    arguments: Vec<String>,
    password: Option<String>,
    listener: Listener,
    folder: TempDir,
}

impl Redis {
    /// Starts one on a Unix socket that keeps nothing on disk, and waits until it answers.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one on a Unix socket, with further arguments of `redis-server`, such as
    /// `--appendonly yes`, each word by itself. Without any it keeps nothing on disk.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start.
    pub async fn start_with(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_at(Door::Socket, arguments).await
    }

    /// Starts one on a free port of 127.0.0.1 besides, likewise.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start.
    pub async fn start_on_tcp(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_at(Door::Tcp, arguments).await
    }

    /// Starts one whose port takes TLS alone, with a certificate for `127.0.0.1` and `localhost`
    /// from an authority of its own, whose certificate is the [`ca_file`](Self::ca_file).
    ///
    /// # Errors
    /// If `redis-server` or `openssl` isn't installed, or it doesn't start.
    pub async fn start_tls() -> anyhow::Result<Self> {
        Self::start_at(Door::Tls, &[]).await
    }

    async fn start_at(door: Door, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(temporary_folder()?, door, arguments).await
    }

    async fn start_in(folder: TempDir, door: Door, arguments: &[&str]) -> anyhow::Result<Self> {
        let given: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
        let password = given.iter().position(|word| word == "--requirepass");
        let password = password.and_then(|position| given.get(position + 1).cloned());
        if let Door::Tls = door {
            tls::make_certificates(folder.path())?;
        }
        let listener = door.open()?;
        let process = spawn(&folder, &listener, &given)?;
        let mut redis = Self { process, arguments: given, password, listener, folder };
        for _ in 0..PORT_ATTEMPTS {
            if let Answer::Ready = redis.answer().await? {
                return Ok(redis);
            }
            redis.listener = door.open()?;
            redis.process = spawn(&redis.folder, &redis.listener, &redis.arguments)?;
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and then wasn't")
    }

    /// Kills it (SIGKILL), and starts it again on what it has kept, with the same arguments and at
    /// the same address.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        let begun = Instant::now();
        loop {
            self.process = spawn(&self.folder, &self.listener, &self.arguments)?;
            match self.answer().await? {
                Answer::Ready => return Ok(()),
                // Somebody's connection may have been given the port in between.
                Answer::AddressInUse if begun.elapsed() < START_TIMEOUT => {
                    sleep(POLL_INTERVAL).await;
                }
                Answer::AddressInUse => bail!("its port stayed in use for {START_TIMEOUT:?}"),
            }
        }
    }

    /// The process, to pause or kill.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Runs a command, each word by itself.
    ///
    /// # Errors
    /// If Redis doesn't answer, or with an error, or with something else than was asked for.
    pub async fn command<T: FromRedisValue>(&self, command: &[&str]) -> anyhow::Result<T> {
        let mut connection = self.connect().await?;
        let (name, arguments) = command.split_first().context("a command has a name")?;
        Ok(redis::cmd(name).arg(arguments).query_async(&mut connection).await?)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// If Redis doesn't answer.
    pub async fn set(&self, key: &str, value: &str) -> anyhow::Result<()> {
        self.command(&["SET", key, value]).await
    }

    /// What `INFO` says of a field.
    ///
    /// # Errors
    /// If Redis doesn't answer, or knows no such field.
    pub async fn info(&self, field: &str) -> anyhow::Result<String> {
        let info: String = self.command(&["INFO", "everything"]).await?;
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        let value = fields.find_map(|(name, value)| (name == field).then(|| value.to_owned()));
        value.with_context(|| format!("INFO has no {field}"))
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Its address, if it has a port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Its URL, without a password: of its port, or else of its socket.
    pub fn url(&self) -> String {
        match (self.address(), &self.listener) {
            (Some(address), Listener::Tls { .. }) => format!("rediss://{address}"),
            (Some(address), _) => format!("redis://{address}"),
            (None, _) => format!("redis+unix://{}", self.socket().display()),
        }
    }

    /// Its URL for a user. Both words stand in it as they are, so they may have letters and digits.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        match self.url().split_once("://") {
            Some((scheme @ ("redis" | "rediss"), address)) => {
                format!("{scheme}://{user}:{password}@{address}")
            }
            _ => format!("{}?user={user}&pass={password}", self.url()),
        }
    }

    /// The certificate of the authority that a client has to trust, if this one takes TLS. In the
    /// environment of a client it is `SSL_CERT_FILE`.
    pub fn ca_file(&self) -> Option<PathBuf> {
        matches!(self.listener, Listener::Tls { .. })
            .then(|| self.folder.path().join(tls::CA_CERTIFICATE))
    }

    /// What it has logged so far.
    ///
    /// # Errors
    /// If the log can't be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("redis.log"))?)
    }

    /// Waits until it answers, has loaded what it kept, or has found its port taken.
    async fn answer(&mut self) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        loop {
            if self.process.has_ended()? {
                let log = self.log().unwrap_or_default();
                // Those of earlier starts are above the last `starting`.
                let last = log.rsplit("Redis is starting").next().unwrap_or_default();
                if last.contains("Address already in use") {
                    return Ok(Answer::AddressInUse);
                }
                bail!(self.process.account(&format!("ended, having logged {last:?}")));
            }
            match self.command::<String>(&["PING"]).await {
                Ok(_) => return Ok(Answer::Ready),
                Err(error) if begun.elapsed() > START_TIMEOUT => {
                    return Err(error.context("redis-server did not start to answer"));
                }
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        let info: ConnectionInfo =
            format!("redis+unix://{}", self.socket().display()).into_connection_info()?;
        let mut settings = info.redis_settings().clone();
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let client = Client::open(info.set_redis_settings(settings))?;
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        Ok(client.get_multiplexed_async_connection_with_config(&patient).await?)
    }
}

/// What became of a start.
enum Answer {
    Ready,
    AddressInUse,
}

/// Starts the process. It logs to a file: a pipe that nobody reads would stop it when full.
fn spawn(folder: &TempDir, listener: &Listener, given: &[String]) -> anyhow::Result<Process> {
    let program = installed("redis-server", &[], "the package redis-server (brew: redis)")?;
    let mut command = Command::new(program);
    // A file of settings, and whether it is a Sentinel, stand before everything else.
    if folder.path().join(sentinels::SETTINGS).is_file() {
        command.arg(folder.path().join(sentinels::SETTINGS)).arg("--sentinel");
    } else {
        command.args(["--save", "", "--appendonly", "no"]);
        // A primary would wait 5 s, for further replicas, before it serves the first.
        command.args(["--repl-diskless-sync-delay", "0"]);
    }
    command.args(["--bind", "127.0.0.1"]).args(listener.arguments(folder.path()));
    command.arg("--unixsocket").arg(folder.path().join("redis.sock"));
    command.arg("--logfile").arg(folder.path().join("redis.log"));
    command.arg("--dir").arg(folder.path()).args(given);
    clock::preload(folder.path(), &mut command)?;
    Process::spawn("redis", &command, folder.path())
}
