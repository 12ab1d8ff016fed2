//! A member of the cluster: a Patroni, and the PostgreSQL that it starts.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use super::{SCOPE, TIMEOUT, network::Network};
use crate::{
    package::installed,
    ports::free_ports,
    postgres::program,
    process::{Process, children, is_stopped, lives},
    user::User,
    wait::until,
};

/// Where `make patroni` puts the program if no package of the system has it.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/patroni/bin");
const PACKAGE: &str = "the packages patroni, python3-etcd and python3-psycopg2";

#[derive(Debug)]
pub(super) struct Member {
    name: String,
    agent: Option<Process>,
    postgres: u16,
    rest: u16,
    pub(super) network: Network,
    user: Option<User>,
    folder: PathBuf,
}

/// Returns the name of a member, which its key in etcd has, too.
pub(super) fn name(number: usize) -> String {
    format!("member-{number}")
}

impl Member {
    /// Makes one with a folder of its own, whose data are missing.
    pub(super) async fn new(
        number: usize,
        user: Option<User>,
        parent: &Path,
        etcd: SocketAddr,
    ) -> anyhow::Result<Self> {
        let name = name(number);
        let folder = parent.join(&name);
        fs::create_dir(&folder)?;
        if let Some(User { uid, gid }) = user {
            chown(&folder, Some(uid), Some(gid))?;
        }
        let [postgres, rest] = free_ports()?;
        let network = Network::new(etcd, postgres, rest).await?;
        Ok(Self { name, agent: None, postgres, rest, network, user, folder })
    }

    /// Starts Patroni, which starts PostgreSQL unless it runs.
    pub(super) fn launch(&mut self) -> anyhow::Result<()> {
        let file = self.folder.join("patroni.yml");
        fs::write(&file, self.settings()?)?;
        let mut command = Command::new(installed("patroni", &[PROGRAMS.into()], PACKAGE)?);
        command.arg(file).current_dir(&self.folder);
        let agent = Process::spawn_as(self.user, &self.name, &command, &self.folder)?;
        self.agent = Some(agent);
        Ok(())
    }

    /// The settings of this member alone. It trusts local users, as the data folder says.
    fn settings(&self) -> anyhow::Result<String> {
        let Self { name, postgres, rest, network, folder, .. } = self;
        // The path may be a link in a folder that lacks the other programs.
        let programs = fs::canonicalize(program("postgres")?)?;
        let programs = programs.parent().context("it is in a folder")?.display();
        let data = self.data();
        let (data, folder) = (data.display(), folder.display());
        let (etcd, replication, other_rest) =
            (network.etcd(), network.replication(), network.rest());
        Ok(format!(
            "scope: {SCOPE}\n\
            name: {name}\n\
            restapi: {{listen: '127.0.0.1:{rest}', connect_address: '{other_rest}'}}\n\
            # Otherwise it asks etcd for its address, and passes the proxy by.\n\
            etcd3: {{hosts: ['{etcd}'], use_proxies: true}}\n\
            watchdog: {{mode: 'off'}}\n\
            postgresql:\n  \
              listen: '127.0.0.1:{postgres}'\n  \
              connect_address: '{replication}'\n  \
              use_unix_socket: true\n  \
              data_dir: '{data}'\n  \
              bin_dir: '{programs}'\n  \
              pgpass: '{folder}/pgpass'\n  \
              authentication: {{superuser: {{username: postgres}}, replication: {{username: postgres}}}}\n  \
              parameters: {{unix_socket_directories: '{folder}', jit: 'off'}}\n"
        ))
    }

    pub(super) fn agent(&mut self) -> anyhow::Result<&mut Process> {
        self.agent.as_mut().with_context(|| format!("{} was killed", self.name))
    }

    pub(super) async fn pause(&mut self) -> anyhow::Result<()> {
        // Patroni first, as it starts a PostgreSQL that has ended. Then PostgreSQL's main process, as it
        // starts the others.
        self.agent()?.pause().await?;
        let main = self.main_process()?;
        kill_process(main, Signal::STOP)?;
        until(TIMEOUT, || Ok(is_stopped(main))).await?;
        for child in children(main)? {
            // It may have ended.
            let _ = kill_process(child, Signal::STOP);
        }
        Ok(())
    }

    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        let main = self.main_process()?;
        for child in children(main)? {
            let _ = kill_process(child, Signal::CONT);
        }
        self.kill_agent();
        kill_process(main, Signal::CONT)?;
        self.launch()
    }

    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.kill_agent();
        let Ok(main) = self.main_process() else { return Ok(()) };
        // SIGKILL would leave shared memory behind.
        kill_process(main, Signal::QUIT)?;
        // One that is paused would not end.
        for child in children(main)? {
            let _ = kill_process(child, Signal::CONT);
        }
        let _ = kill_process(main, Signal::CONT);
        let pid = main.as_raw_nonzero().get().cast_unsigned();
        until(TIMEOUT, || Ok(!lives(pid))).await.context("PostgreSQL did not end")
    }

    /// Kills Patroni, and the programs that it runs, such as those that copy the primary's data.
    pub(super) fn kill_agent(&mut self) {
        let Some(mut agent) = self.agent.take() else { return };
        // It must start no other meanwhile.
        let _ = agent.signal(Signal::STOP);
        let programs = children(agent.pid()).unwrap_or_default();
        let _ = agent.kill();
        for program in programs {
            let _ = kill_process(program, Signal::KILL);
        }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(super) fn socket_url(&self) -> String {
        let (port, folder) = (self.postgres, self.folder.display());
        format!("postgres://postgres@localhost:{port}/postgres?host={folder}")
    }

    /// Returns what Patroni and PostgreSQL have logged since the last start.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.stderr", self.name))).unwrap_or_default()
    }

    /// Whether its Patroni follows this leader, and is done with asking it. It asks for the leader's timeline
    /// when it starts, when it has another leader, and again until it is answered. In its log, that begins
    /// with `Local timeline`, and two rounds without it end that.
    pub(super) fn follows_quietly(&self, leader: &str) -> bool {
        let log = self.log();
        let rounds = log.rsplit("Local timeline=").next().unwrap_or_default();
        rounds.matches(&format!("a secondary, and following a leader ({leader})")).count() >= 2
    }

    pub(super) fn end_of_log(&self) -> String {
        let log = self.log();
        let mut last: Vec<_> = log.lines().rev().take(20).collect();
        last.push(&self.name);
        last.reverse();
        last.join("\n")
    }

    /// Returns the id of PostgreSQL's main process.
    fn main_process(&self) -> anyhow::Result<Pid> {
        let missing = || format!("PostgreSQL of {} does not run", self.name);
        let lock = fs::read_to_string(self.data().join("postmaster.pid")).with_context(missing)?;
        let pid = lock.lines().next().and_then(|line| line.trim().parse().ok());
        pid.and_then(Pid::from_raw).with_context(missing)
    }
}
