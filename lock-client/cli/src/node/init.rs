//! `lock-client node init`.

use clap::Args;
use lock_client::{Ttl, redlock::operator::Cluster};

use crate::{acquisition::parse_ttl, failure::Failure, lock_service::LockService, stdout::print};

pub(super) const HELP: &str = "\
All nodes must be running. Each must be a server of its own, and a member of no cluster. If init \
is interrupted, run it again. It prints the cluster, as node status --json does.

A node has no vote after a restart, whatever its settings, until it is admitted: run node admit \
--watch as a service. After you restored a backup on a node, restart it.

To start a cluster again when too few nodes are left: stop all clients, and wait for the longest \
ttl; delete the keys fenced:* on the nodes that restarted, and fenced:node on the others; then run \
node init.";

#[derive(Args, Debug)]
pub(crate) struct Init {
    #[command(flatten)]
    nodes: LockService,

    /// The longest ttl of any lock. A restarted node waits as long. It can't be changed later
    ///
    /// The ttl of run is 30s by default.
    #[arg(long, value_parser = parse_ttl, value_name = "DURATION", default_value = "5m")]
    max_ttl: Ttl,
}

impl Init {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let cluster = self.nodes.operator()?.start_cluster(self.max_ttl).await?;
        print(&cluster)?;
        let Cluster { nodes, majority, voting, .. } = cluster;
        if voting == nodes {
            return Ok(());
        }
        let problem = format!(
            "they are a cluster already, and {voting} of {nodes} nodes may vote: see `lock-client \
             node status`"
        );
        Err(if voting < majority {
            Failure::Unavailable(problem)
        } else {
            Failure::Degraded(problem)
        })
    }
}
