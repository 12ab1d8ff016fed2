//! A private Redis.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use redis::{ConnectionInfo, FromRedisValue, IntoConnectionInfo, aio::MultiplexedConnection};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{
    launch::{APPEND_ONLY_FILES, LOG, SNAPSHOT, SOCKET, launch},
    listener::{Door, Listener},
};
use crate::{clock::Clock, process::Process, tls};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often other ports are tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

/// A private Redis in a temporary folder. It always has a Unix socket.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    arguments: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) listener: Listener,
    folder: TempDir,
}

impl Redis {
    /// Starts one that keeps nothing on disk, on a Unix socket, and waits until it answers.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one with further arguments of `redis-server`, each word by itself, such as
    /// `["--appendonly", "yes"]`.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start.
    pub async fn start_with(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_at(Door::Socket, arguments).await
    }

    /// Starts one with further arguments that also has a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start.
    pub async fn start_on_tcp(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_at(Door::Tcp, arguments).await
    }

    /// Starts one with a port that takes TLS only. Its certificate is for `127.0.0.1` and
    /// `localhost`, from an authority whose certificate is the [`ca_file`](Self::ca_file).
    ///
    /// # Errors
    /// If `redis-server` or `openssl` isn't installed, or `redis-server` doesn't start.
    pub async fn start_tls() -> anyhow::Result<Self> {
        Self::start_at(Door::Tls, &[]).await
    }

    /// Starts one like [`start_tls`](Self::start_tls), with further arguments, whose clients need a
    /// [certificate](Self::client_certificate), as they do by default.
    ///
    /// # Errors
    /// If `redis-server` or `openssl` isn't installed, or `redis-server` doesn't start.
    pub async fn start_mutual_tls(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_at(Door::MutualTls, arguments).await
    }

    /// Starts one with further arguments and with a wall clock of its own, which can
    /// [`jump`](Self::jump). Its other clocks, by which Redis measures durations, are the
    /// machine's.
    ///
    /// # Errors
    /// If this is not Linux, or `redis-server` isn't installed or doesn't start.
    pub async fn start_with_own_clock(arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = new_folder()?;
        Clock::new(folder.path())?;
        Self::start_in(folder, Door::Socket, arguments).await
    }

    pub(super) async fn start_at(door: Door, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(new_folder()?, door, arguments).await
    }

    /// Starts one in a folder, in which files for [`launch`] may already be.
    pub(super) async fn start_in(
        folder: TempDir,
        door: Door,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
        let password = arguments.iter().position(|word| word == "--requirepass");
        let password = password.and_then(|position| arguments.get(position + 1).cloned());
        if let Door::Tls | Door::MutualTls = door {
            tls::make_certificates(folder.path())?;
        }
        let listener = door.open()?;
        let process = launch(folder.path(), &listener, &arguments)?;
        let mut redis = Self { process, arguments, password, listener, folder };
        for _ in 0..PORT_ATTEMPTS {
            if let Answer::Ready = redis.answer().await? {
                return Ok(redis);
            }
            redis.listener = door.open()?;
            redis.process = launch(redis.folder.path(), &redis.listener, &redis.arguments)?;
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }

    /// Kills the process (SIGKILL), and starts it again with what it has on disk, with the same
    /// arguments and at the same address.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        let begun = Instant::now();
        loop {
            self.process = launch(self.folder.path(), &self.listener, &self.arguments)?;
            match self.answer().await? {
                Answer::Ready => return Ok(()),
                // Meanwhile a connection of another process may have got the port.
                Answer::AddressInUse if begun.elapsed() < START_TIMEOUT => {
                    sleep(POLL_INTERVAL).await;
                }
                Answer::AddressInUse => {
                    bail!("the port of redis-server stayed in use for {START_TIMEOUT:?}")
                }
            }
        }
    }

    /// Kills the process (SIGKILL), deletes what it has on disk, and starts it again, with the same
    /// arguments and at the same address.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn restart_empty(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        for entry in fs::read_dir(self.folder.path())? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            match name.to_str() {
                Some(SNAPSHOT) => fs::remove_file(path)?,
                Some(APPEND_ONLY_FILES) => fs::remove_dir_all(path)?,
                _ => {}
            }
        }
        self.restart().await
    }

    /// Returns its process, to pause or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Runs a command, each word by itself, and returns the answer.
    ///
    /// # Errors
    /// If Redis doesn't answer, answers with an error, or answers with another type.
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

    /// Returns a field of `INFO`.
    ///
    /// # Errors
    /// If Redis doesn't answer, or has no such field.
    pub async fn info(&self, field: &str) -> anyhow::Result<String> {
        let info: String = self.command(&["INFO", "everything"]).await?;
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        let value = fields.find_map(|(name, value)| (name == field).then(|| value.to_owned()));
        value.with_context(|| format!("INFO has no {field}"))
    }

    /// Sets its clock forward, at once and also for later starts.
    ///
    /// # Errors
    /// If it was not started with a clock of its own.
    pub fn jump(&self, by: Duration) -> anyhow::Result<()> {
        let clock = Clock::find(self.folder.path());
        clock.context("this Redis has the machine's clock")?.jump(by)
    }

    /// Returns its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Returns its address, if it has a port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Returns the URL of its port, or else of its socket, without a password.
    pub fn url(&self) -> String {
        match (self.address(), &self.listener) {
            (Some(address), Listener::Tls { .. }) => format!("rediss://{address}"),
            (Some(address), _) => format!("redis://{address}"),
            (None, _) => format!("redis+unix://{}", self.socket().display()),
        }
    }

    /// Returns its URL for a user. Neither word is escaped: only letters and digits are safe.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        match self.url().split_once("://") {
            Some((scheme @ ("redis" | "rediss"), address)) => {
                format!("{scheme}://{user}:{password}@{address}")
            }
            _ => format!("{}?user={user}&pass={password}", self.url()),
        }
    }

    /// Returns the certificate of the authority that a client has to trust, if this one takes TLS.
    /// A client finds it by the environment's `SSL_CERT_FILE`.
    pub fn ca_file(&self) -> Option<PathBuf> {
        matches!(self.listener, Listener::Tls { .. })
            .then(|| self.folder.path().join(tls::CA_CERTIFICATE))
    }

    /// Returns a certificate that it accepts from clients, and the key, if it takes TLS. They are its
    /// own: any certificate of the authority will do.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        let file = |name: &str| self.folder.path().join(name);
        matches!(self.listener, Listener::Tls { .. })
            .then(|| (file(tls::CERTIFICATE), file(tls::KEY)))
    }

    /// Returns its log so far.
    ///
    /// # Errors
    /// If the log can't be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.folder.path().join(LOG))?)
    }

    /// Waits until it answers with its data loaded, or has ended because its port was taken.
    async fn answer(&mut self) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        loop {
            if self.process.has_ended()? {
                let log = self.log().unwrap_or_default();
                // Only what it logged since its last start.
                let last = log.rsplit("Redis is starting").next().unwrap_or_default();
                if last.contains("Address already in use") {
                    return Ok(Answer::AddressInUse);
                }
                bail!(self.process.account(&format!("has ended with the log {last:?}")));
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
        Ok(super::connect(info.set_redis_settings(settings)).await?)
    }
}

/// The outcome of a start.
enum Answer {
    Ready,
    AddressInUse,
}

/// Makes the folder of a Redis.
pub(super) fn new_folder() -> anyhow::Result<TempDir> {
    Ok(TempDir::with_prefix("fenced-")?)
}
