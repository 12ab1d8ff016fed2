//! The connections of a member, each of which can be cut.

use std::net::{Ipv4Addr, SocketAddr};

use crate::proxy::Proxy;

/// Connections of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Its own, to etcd.
    Etcd,
    /// The other members', to its PostgreSQL for replication, and to its Patroni.
    Members,
    /// The clients', to its PostgreSQL.
    Clients,
}

/// A proxy for each way to or from a member.
#[derive(Debug)]
pub(super) struct Network {
    etcd: Proxy,
    replication: Proxy,
    rest: Proxy,
    clients: Proxy,
}

impl Network {
    /// Starts the proxies of a member whose PostgreSQL and Patroni listen at these ports.
    pub(super) async fn new(etcd: SocketAddr, postgres: u16, rest: u16) -> anyhow::Result<Self> {
        let [postgres, rest] =
            [postgres, rest].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok(Self {
            etcd: Proxy::start(etcd).await?,
            replication: Proxy::start(postgres).await?,
            rest: Proxy::start(rest).await?,
            clients: Proxy::start(postgres).await?,
        })
    }

    /// Where the member reaches etcd.
    pub(super) fn etcd(&self) -> SocketAddr {
        self.etcd.address()
    }

    /// Where other members reach its PostgreSQL.
    pub(super) fn replication(&self) -> SocketAddr {
        self.replication.address()
    }

    /// Where other members reach its Patroni.
    pub(super) fn rest(&self) -> SocketAddr {
        self.rest.address()
    }

    /// Where clients reach its PostgreSQL.
    pub(super) fn clients(&self) -> SocketAddr {
        self.clients.address()
    }

    pub(super) fn cut(&self, link: Link) {
        self.proxies(link).into_iter().for_each(Proxy::cut);
    }

    pub(super) fn mend(&self, link: Link) {
        self.proxies(link).into_iter().for_each(Proxy::mend);
    }

    fn proxies(&self, link: Link) -> Vec<&Proxy> {
        match link {
            Link::Etcd => vec![&self.etcd],
            Link::Members => vec![&self.replication, &self.rest],
            Link::Clients => vec![&self.clients],
        }
    }
}
