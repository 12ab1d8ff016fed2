//! A private ZooKeeper, of one member or three.

mod backup;
mod classes;
mod control;
mod launch;

use std::{
    fs, mem,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use self::launch::Door;
use crate::{clock::Clock, ports::free_ports, process::Process, tls};

/// How many members it has at most.
const MOST_MEMBERS: usize = 3;
const LONGEST_SESSION: Duration = Duration::from_secs(600);
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often other ports are tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

/// A private ZooKeeper on free ports of 127.0.0.1, with its data in a temporary folder. Its sessions
/// last from 1 second to 10 minutes, and it deletes empty containers within half a second.
#[derive(Debug)]
pub struct ZooKeeper {
    members: Vec<Member>,
    door: Door,
    /// The longest session of each member.
    longest_sessions: [Duration; MOST_MEMBERS],
    /// How many connections each address may have at a member, if it isn't ZooKeeper's own limit.
    most_connections: Option<usize>,
    /// Whether it makes the archive of classes that later ones use.
    makes_archive: bool,
    folder: TempDir,
}

/// One member, whose process may have been killed.
#[derive(Debug)]
struct Member {
    process: Process,
    ports: Ports,
}

/// The ports of a member.
#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    /// For encrypted connections.
    secure: u16,
    peer: u16,
    election: u16,
}

/// The outcome of a start.
enum Answer {
    Ready,
    AddressInUse,
}

impl ZooKeeper {
    /// Starts one of a single member, and waits until it answers.
    ///
    /// # Errors
    /// If ZooKeeper isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_members(Door::Tcp, 1).await
    }

    /// Starts one of a single member with a [`clock`](Self::clock) of its own.
    ///
    /// # Errors
    /// If this is not Linux, or ZooKeeper isn't installed or doesn't start.
    pub async fn start_with_own_clock() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        Clock::new(folder.path())?;
        Self::start_members_in(folder, Door::Tcp, 1).await
    }

    /// Starts one of three members, and waits until all answer.
    ///
    /// # Errors
    /// If ZooKeeper isn't installed or doesn't start.
    pub async fn start_cluster() -> anyhow::Result<Self> {
        Self::start_members(Door::Tcp, 3).await
    }

    /// Starts one whose [`url`](Self::url) takes TLS only. Its certificate is for `127.0.0.1` and
    /// `localhost`, from an authority whose certificate is the [`ca_file`](Self::ca_file).
    ///
    /// # Errors
    /// If ZooKeeper or `openssl` isn't installed, or ZooKeeper doesn't start.
    pub async fn start_tls() -> anyhow::Result<Self> {
        Self::start_members(Door::Tls, 1).await
    }

    /// Starts one like [`start_tls`](Self::start_tls), whose clients need a
    /// [certificate](Self::client_certificate).
    ///
    /// # Errors
    /// If ZooKeeper or `openssl` isn't installed, or ZooKeeper doesn't start.
    pub async fn start_mutual_tls() -> anyhow::Result<Self> {
        Self::start_members(Door::MutualTls, 1).await
    }

    async fn start_members(door: Door, count: usize) -> anyhow::Result<Self> {
        Self::start_members_in(TempDir::with_prefix("fenced-")?, door, count).await
    }

    async fn start_members_in(folder: TempDir, door: Door, count: usize) -> anyhow::Result<Self> {
        if door != Door::Tcp {
            tls::make_certificates(folder.path())?;
        }
        let java = launch::program()?;
        let mut zookeeper = Self {
            members: Vec::new(),
            door,
            longest_sessions: [LONGEST_SESSION; MOST_MEMBERS],
            most_connections: None,
            makes_archive: door == Door::Tcp && count == 1 && classes::is_missing(&java)?,
            folder,
        };
        for _ in 0..PORT_ATTEMPTS {
            zookeeper.clear()?;
            let ports: Vec<_> = free_ports::<12>()?
                .chunks_exact(4)
                .map(|ports| {
                    let [client, secure, peer, election] = ports else { unreachable!("four each") };
                    Ports { client: *client, secure: *secure, peer: *peer, election: *election }
                })
                .collect();
            let ports = &ports[..count];
            for (number, &own) in ports.iter().enumerate() {
                let process = zookeeper.launch(number, ports)?;
                zookeeper.members.push(Member { process, ports: own });
            }
            if let Answer::Ready = zookeeper.answer().await? {
                if mem::take(&mut zookeeper.makes_archive) {
                    zookeeper.keep_archive(&java).await?;
                    zookeeper.launch_all().await?;
                }
                return Ok(zookeeper);
            }
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }

    /// Returns the URL of all members for `lock-client`.
    pub fn url(&self) -> String {
        let addresses: Vec<_> =
            (0..self.members.len()).map(|number| self.address(number).to_string()).collect();
        let scheme = if self.door == Door::Tcp { "zookeeper" } else { "zookeepers" };
        format!("{scheme}://{}", addresses.join(","))
    }

    /// Returns the address of a member for clients.
    pub fn address(&self, number: usize) -> SocketAddr {
        let Ports { client, secure, .. } = self.members[number].ports;
        let port = if self.door == Door::Tcp { client } else { secure };
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// Returns the address of a member that takes no TLS.
    pub fn plain_address(&self, number: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.members[number].ports.client).into()
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

    /// Returns its clock.
    ///
    /// # Errors
    /// If it was not started with a clock of its own.
    pub fn clock(&self) -> anyhow::Result<Clock> {
        Clock::find(self.folder.path()).context("this ZooKeeper has the machine's clock")
    }

    /// Returns the process of a member.
    pub fn process(&mut self, number: usize) -> &mut Process {
        &mut self.members[number].process
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

    /// Sets the longest session of a member (`maxSessionTimeout`). It counts from its next start.
    pub fn limit_sessions(&mut self, number: usize, longest: Duration) {
        self.longest_sessions[number] = longest;
    }

    /// Limits the connections of each address at a member (`maxClientCnxns`). It counts from the next start.
    pub fn limit_connections(&mut self, most: usize) {
        self.most_connections = Some(most);
    }

    /// Kills all members (SIGKILL), and starts them again with what they have on disk.
    ///
    /// # Errors
    /// If one doesn't start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        self.launch_all().await
    }

    /// Kills all members, and starts them again without any data.
    ///
    /// # Errors
    /// If one doesn't start.
    pub async fn restart_empty(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        self.delete_data()?;
        self.launch_all().await
    }

    /// Waits until one of these members is the leader, and returns its number.
    ///
    /// # Errors
    /// If none is within a minute.
    pub async fn leader_among(&self, members: &[usize]) -> anyhow::Result<usize> {
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            for &number in members {
                if self.mode(number).await.is_some_and(|mode| mode == "leader") {
                    return Ok(number);
                }
            }
            sleep(POLL_INTERVAL).await;
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
                    ensure!(begun.elapsed() < START_TIMEOUT, "a port of ZooKeeper stayed in use");
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
        self.kill_all()?;
        self.delete_data()?;
        self.members.clear();
        Ok(())
    }

    fn delete_data(&self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            let data = self.data_folder(number);
            if data.exists() {
                fs::remove_dir_all(data)?;
            }
        }
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

    /// Waits until a member serves clients, or has ended because its port was taken.
    async fn answer_of(&mut self, number: usize) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        loop {
            let process = &mut self.members[number].process;
            if process.has_ended()? {
                if process.stderr()?.contains("Address already in use") {
                    return Ok(Answer::AddressInUse);
                }
                bail!(process.account("has ended"));
            }
            // The port for encrypted connections is the last to open.
            let is_open = TcpStream::connect(self.address(number)).await.is_ok();
            if is_open && self.mode(number).await.is_some() {
                return Ok(Answer::Ready);
            }
            let process = &self.members[number].process;
            ensure!(begun.elapsed() < START_TIMEOUT, process.account("does not serve clients"));
            sleep(POLL_INTERVAL).await;
        }
    }

    fn ports(&self) -> Vec<Ports> {
        self.members.iter().map(|member| member.ports).collect()
    }

    fn data_folder(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{}.data", launch::name(number)))
    }
}
