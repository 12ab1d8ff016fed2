//! A private etcd, of one member or three.

mod control;
mod launch;
mod learner;
mod snapshot;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use self::launch::{Door, name};
use crate::{clock::Clock, ports::free_ports, process::Process, tls};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often other ports are tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

/// A private etcd on free ports of 127.0.0.1, with its data in a temporary folder. Its shortest ttl is
/// 1 second.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    door: Door,
    arguments: Vec<String>,
    /// The user that `etcdctl` logs in as, and the password.
    user: Option<String>,
    folder: TempDir,
}

/// One member, whose process may have been killed.
#[derive(Debug)]
struct Member {
    process: Process,
    client: u16,
    peer: u16,
}

/// The outcome of a start.
enum Answer {
    Ready,
    AddressInUse,
}

impl Etcd {
    /// Starts one of a single member, and waits until it answers.
    ///
    /// # Errors
    /// If etcd isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one of a single member, with further arguments of `etcd`.
    ///
    /// # Errors
    /// If etcd isn't installed or doesn't start.
    pub async fn start_with(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_at(Door::Tcp, 1, arguments).await
    }

    /// Starts one of a single member with a [`clock`](Self::clock) of its own.
    ///
    /// # Errors
    /// If this is not Linux, or etcd isn't installed or doesn't start. A static etcd starts, and keeps the
    /// machine's clock.
    pub async fn start_with_own_clock() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        Clock::new(folder.path())?;
        Self::start_in(folder, Door::Tcp, 1, &[]).await
    }

    /// Starts one of three members, and waits until all answer.
    ///
    /// # Errors
    /// If etcd isn't installed or doesn't start.
    pub async fn start_cluster() -> anyhow::Result<Self> {
        Self::start_at(Door::Tcp, 3, &[]).await
    }

    /// Starts one whose port takes TLS only. Its certificate is for `127.0.0.1` and `localhost`, from
    /// an authority whose certificate is the [`ca_file`](Self::ca_file).
    ///
    /// # Errors
    /// If etcd or `openssl` isn't installed, or etcd doesn't start.
    pub async fn start_tls() -> anyhow::Result<Self> {
        Self::start_at(Door::Tls, 1, &[]).await
    }

    /// Starts one like [`start_tls`](Self::start_tls), whose clients need a
    /// [certificate](Self::client_certificate).
    ///
    /// # Errors
    /// If etcd or `openssl` isn't installed, or etcd doesn't start.
    pub async fn start_mutual_tls() -> anyhow::Result<Self> {
        Self::start_at(Door::MutualTls, 1, &[]).await
    }

    async fn start_at(door: Door, count: usize, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(TempDir::with_prefix("fenced-")?, door, count, arguments).await
    }

    async fn start_in(
        folder: TempDir,
        door: Door,
        count: usize,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        if door != Door::Tcp {
            tls::make_certificates(folder.path())?;
        }
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        let mut etcd = Self { members: Vec::new(), door, arguments, user: None, folder };
        for _ in 0..PORT_ATTEMPTS {
            etcd.clear()?;
            let ports = free_ports::<6>()?;
            let ports: Vec<_> = ports.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            let ports = &ports[..count];
            for (number, &(client, peer)) in ports.iter().enumerate() {
                let process = etcd.launch(number, ports)?;
                etcd.members.push(Member { process, client, peer });
            }
            if let Answer::Ready = etcd.answer().await? {
                return Ok(etcd);
            }
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }

    /// Returns the URL of all members for `lock-client`.
    pub fn url(&self) -> String {
        let scheme = if self.door == Door::Tcp { "etcd" } else { "etcds" };
        let addresses: Vec<_> =
            (0..self.members.len()).map(|number| self.address(number).to_string()).collect();
        format!("{scheme}://{}", addresses.join(","))
    }

    /// Returns the address of a member for clients.
    pub fn address(&self, number: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.members[number].client).into()
    }

    /// Returns its clock.
    ///
    /// # Errors
    /// If it was not started with a clock of its own.
    pub fn clock(&self) -> anyhow::Result<Clock> {
        Clock::find(self.folder.path()).context("this etcd has the machine's clock")
    }

    /// Returns the process of a member.
    pub fn process(&mut self, number: usize) -> &mut Process {
        &mut self.members[number].process
    }

    /// Turns authentication on. From then on, this logs in as `root`.
    ///
    /// A user `locker` with the password `p@ss` may read and write keys that begin with `fenced/`. A
    /// user `guest` with the same password may do nothing.
    ///
    /// # Errors
    /// If `etcdctl` fails.
    pub async fn require_users(&mut self) -> anyhow::Result<()> {
        for arguments in [
            "user add root:secret",
            "user grant-role root root",
            "role add locker",
            "role grant-permission --prefix locker readwrite fenced/",
            "user add locker:p@ss",
            "user grant-role locker locker",
            "user add guest:p@ss",
            "auth enable",
        ] {
            self.etcdctl(&arguments.split(' ').collect::<Vec<_>>()).await?;
        }
        self.user = Some("root:secret".to_owned());
        Ok(())
    }

    /// Starts a member that was killed, and does not wait until it answers. Without a quorum, it never
    /// does.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn launch_again(&mut self, number: usize) -> anyhow::Result<()> {
        self.members[number].process = self.launch(number, &self.ports())?;
        Ok(())
    }

    /// Kills all members (SIGKILL), and starts them again with what they have on disk.
    ///
    /// # Errors
    /// If one doesn't start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        self.launch_all().await
    }

    /// Kills all members (SIGKILL), and starts them again without any data, as a new cluster.
    ///
    /// # Errors
    /// If one doesn't start.
    pub async fn restart_empty(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        for number in 0..self.members.len() {
            fs::remove_dir_all(self.data_folder(number))?;
        }
        self.launch_all().await
    }

    /// Runs `etcdctl` on all members, and returns what it prints.
    ///
    /// # Errors
    /// If it isn't installed, or fails.
    pub async fn etcdctl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let endpoints: Vec<_> =
            (0..self.members.len()).map(|number| self.endpoint(number)).collect();
        self.etcdctl_at(&endpoints.join(","), arguments).await
    }

    /// Waits until one of these members is the leader, and returns its number.
    ///
    /// # Errors
    /// If none is within 30 seconds.
    pub async fn leader_among(&self, members: &[usize]) -> anyhow::Result<usize> {
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            for &number in members {
                // The fifth column shows whether a member is the leader.
                let status = ["endpoint", "status", "--command-timeout=1s"];
                let status = self.etcdctl_at(&self.endpoint(number), &status).await;
                if status.is_ok_and(|status| status.split(", ").nth(4) == Some("true")) {
                    return Ok(number);
                }
            }
        }
        bail!("none of the members {members:?} became the leader")
    }

    async fn launch_all(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let ports = self.ports();
            for number in 0..ports.len() {
                self.members[number].process = self.launch(number, &ports)?;
            }
            match self.answer().await? {
                Answer::Ready => return Ok(()),
                Answer::AddressInUse => {
                    ensure!(begun.elapsed() < START_TIMEOUT, "a port of etcd stayed in use");
                    self.kill_all()?;
                }
            }
        }
    }

    fn kill_all(&mut self) -> anyhow::Result<()> {
        self.members.iter_mut().try_for_each(|member| member.process.kill())
    }

    /// Ends all members, and deletes their data.
    fn clear(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.members[number].process.kill()?;
            let data = self.data_folder(number);
            if data.exists() {
                fs::remove_dir_all(data)?;
            }
        }
        self.members.clear();
        Ok(())
    }

    async fn answer(&mut self) -> anyhow::Result<Answer> {
        for number in 0..self.members.len() {
            if let Answer::AddressInUse = self.answer_of(number).await? {
                return Ok(Answer::AddressInUse);
            }
        }
        Ok(Answer::Ready)
    }

    /// Waits until a member answers by a quorum, or has ended because its port was taken.
    async fn answer_of(&mut self, number: usize) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        loop {
            if self.members[number].process.has_ended()? {
                let stderr = self.members[number].process.stderr()?;
                if stderr.contains("address already in use") {
                    return Ok(Answer::AddressInUse);
                }
                bail!(self.members[number].process.account("has ended"));
            }
            match self.health(number).await {
                Ok(()) => return Ok(Answer::Ready),
                Err(error) if begun.elapsed() > START_TIMEOUT => {
                    return Err(error.context("etcd did not start to answer"));
                }
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn ports(&self) -> Vec<(u16, u16)> {
        self.members.iter().map(|member| (member.client, member.peer)).collect()
    }

    fn scheme(&self) -> &'static str {
        if self.door == Door::Tcp { "http" } else { "https" }
    }

    fn endpoint(&self, number: usize) -> String {
        format!("{}://{}", self.scheme(), self.address(number))
    }

    fn data_folder(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{}.data", name(number)))
    }

    /// Returns the certificate of the authority that a client has to trust.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join(tls::CA_CERTIFICATE)
    }

    /// Returns a certificate that it accepts from clients, and the key.
    pub fn client_certificate(&self) -> (PathBuf, PathBuf) {
        let file = |name: &str| self.folder.path().join(name);
        (file(tls::CERTIFICATE), file(tls::KEY))
    }
}
