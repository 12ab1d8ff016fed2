//! A member that does not vote.

use std::net::SocketAddr;

use super::{Etcd, Member, launch::name};
use crate::{ports::free_ports, wait::until_async};

impl Etcd {
    /// Adds a learner, and waits until it runs. Returns its address for clients.
    ///
    /// # Errors
    /// If `etcdctl` fails, or the learner doesn't start.
    pub async fn add_learner(&mut self) -> anyhow::Result<SocketAddr> {
        let number = self.members.len();
        let [client, peer] = free_ports::<2>()?;
        let peer_url = format!("--peer-urls=http://127.0.0.1:{peer}");
        self.etcdctl(&["member", "add", &name(number), "--learner", &peer_url]).await?;
        let ports = [self.ports(), vec![(client, peer)]].concat();
        let process = self.launch_with(&["--initial-cluster-state=existing"], number, &ports)?;
        self.members.push(Member { process, client, peer });
        // A learner has no other health.
        let status = ["endpoint", "status", "--command-timeout=1s"];
        let endpoint = self.endpoint(number);
        let runs = async || Ok(self.etcdctl_at(&endpoint, &status).await.is_ok());
        until_async(super::START_TIMEOUT, runs).await?;
        Ok(self.address(number))
    }
}
