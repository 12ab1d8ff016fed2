//! `lock-client node init`.

use clap::Args;

use crate::{Failure, LockService, events::print, ttl};
use lock_client::Ttl;

pub(super) const HELP: &str = "\
All nodes have to be there, each a server of its own, and none of them in a cluster. If it is \
interrupted, run it again. What it prints is the cluster, as node status does.

A node that has every write on disk before it answers (appendonly yes, appendfsync always) keeps its \
vote when it restarts. Any other has none then, until node admit lets it in again. After a backup was \
restored on a node, delete its key fenced:node, and let it in by node admit.

To start a cluster anew, of which too few nodes are left: stop all clients, and wait for the longest \
ttl; delete the keys fenced:* on the nodes that were started anew, and fenced:node on the others; then \
run this.";

#[derive(Args, Debug)]
pub(crate) struct Init {
    #[command(flatten)]
    nodes: LockService,

    /// The longest ttl that is granted, and how long node admit waits; that of run is 30s if it
    /// isn't told otherwise
    #[arg(long, value_parser = ttl, value_name = "DURATION", default_value = "5m")]
    max_ttl: Ttl,
}

impl Init {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        print(&self.nodes.operator()?.start_cluster(self.max_ttl).await?)
    }
}
