//! The command line of a member.

use std::process::Command;

use super::{Etcd, control::program};
use crate::{clock::Clock, process::Process, tls};

/// Members elect another leader after this many milliseconds. So the shortest ttl is 1 second.
const ELECTION_TIMEOUT: &str = "500";
const HEARTBEAT_INTERVAL: &str = "50";

/// The kind of connection that the clients need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Tcp,
    Tls,
    MutualTls,
}

impl Etcd {
    pub(super) fn launch(&self, number: usize, ports: &[(u16, u16)]) -> anyhow::Result<Process> {
        self.launch_with(&[], number, ports)
    }

    /// Starts a member with further arguments, which the others do not have.
    pub(super) fn launch_with(
        &self,
        arguments: &[&str],
        number: usize,
        ports: &[(u16, u16)],
    ) -> anyhow::Result<Process> {
        let (client, peer) = ports[number];
        let client = format!("{}://127.0.0.1:{client}", self.scheme());
        let peer = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(program("etcd")?);
        command.args(["--name", &name(number), "--initial-cluster", &initial_cluster(ports)]);
        command.arg("--data-dir").arg(self.data_folder(number));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--heartbeat-interval", HEARTBEAT_INTERVAL]);
        command.args(["--election-timeout", ELECTION_TIMEOUT]).args(&self.arguments);
        command.args(arguments);
        if self.door != Door::Tcp {
            for (option, file) in [("--cert-file", tls::CERTIFICATE), ("--key-file", tls::KEY)] {
                command.arg(option).arg(self.folder.path().join(file));
            }
        }
        if self.door == Door::MutualTls {
            let authority = self.folder.path().join(tls::CA_CERTIFICATE);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(authority);
        }
        if let Some(clock) = Clock::find(self.folder.path()) {
            clock.preload(&mut command);
        }
        Process::spawn(&name(number), &command, self.folder.path())
    }
}

pub(super) fn name(number: usize) -> String {
    format!("etcd-{number}")
}

pub(super) fn initial_cluster(ports: &[(u16, u16)]) -> String {
    let member = |(number, (_, peer)): (usize, &(u16, u16))| {
        format!("{}=http://127.0.0.1:{peer}", name(number))
    };
    ports.iter().enumerate().map(member).collect::<Vec<_>>().join(",")
}
