//! Where a Redis listens, besides its Unix socket.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crate::{ports::free_ports, tls};

/// The kind of port that a Redis has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Door {
    /// No port.
    Socket,
    /// A port that takes plain TCP.
    Tcp,
    /// A port that takes TLS only.
    Tls,
    /// The same, and clients need a certificate.
    MutualTls,
    /// A port that takes plain TCP, and another for the other nodes of the Cluster.
    ClusterNode,
}

/// The ports of a Redis.
#[derive(Debug)]
pub(super) enum Listener {
    Socket,
    Tcp { port: u16 },
    Tls { port: u16, auth_clients: &'static str },
    ClusterNode { port: u16, bus: u16 },
}

impl Door {
    /// Chooses free ports. Another process may still take them before Redis does.
    pub(super) fn open(self) -> anyhow::Result<Listener> {
        Ok(match self {
            Self::Socket => Listener::Socket,
            Self::Tcp => Listener::Tcp { port: free_ports::<1>()?[0] },
            Self::Tls => Listener::Tls { port: free_ports::<1>()?[0], auth_clients: "no" },
            Self::MutualTls => Listener::Tls { port: free_ports::<1>()?[0], auth_clients: "yes" },
            Self::ClusterNode => {
                let [port, bus] = free_ports()?;
                Listener::ClusterNode { port, bus }
            }
        })
    }
}

impl Listener {
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match *self {
            Self::Socket => None,
            Self::Tcp { port } | Self::Tls { port, .. } | Self::ClusterNode { port, .. } => {
                Some((Ipv4Addr::LOCALHOST, port).into())
            }
        }
    }

    /// Returns the port for clients and the port for the other nodes, if it is a node of a Cluster.
    pub(super) fn cluster_ports(&self) -> Option<(u16, u16)> {
        match *self {
            Self::ClusterNode { port, bus } => Some((port, bus)),
            _ => None,
        }
    }

    /// Returns the arguments of redis-server.
    pub(super) fn arguments(&self, folder: &Path) -> Vec<String> {
        let in_folder = |file: &str| folder.join(file).display().to_string();
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        match self {
            Self::Socket => words(&["--port", "0"]),
            Self::Tcp { port } => words(&["--port", &port.to_string()]),
            Self::Tls { port, auth_clients } => words(&[
                "--port",
                "0",
                "--tls-port",
                &port.to_string(),
                "--tls-ca-cert-file",
                &in_folder(tls::CA_CERTIFICATE),
                "--tls-cert-file",
                &in_folder(tls::CERTIFICATE),
                "--tls-key-file",
                &in_folder(tls::KEY),
                "--tls-auth-clients",
                auth_clients,
            ]),
            Self::ClusterNode { port, bus } => words(&[
                "--port",
                &port.to_string(),
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus.to_string(),
                // Without this, a node doesn't know its address until another has met it.
                "--cluster-announce-ip",
                "127.0.0.1",
            ]),
        }
    }
}
