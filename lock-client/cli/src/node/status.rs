//! `lock-client node status`.

use clap::Args;

use crate::{failure::Failure, lock_service::LockService, stdout::print};

pub(super) const HELP: &str = "\
Prints a line for each node, and then one for the cluster. A node's state is one of these:
  voting         it may vote
  restarted      it restarted, and may have lost its counters: see node admit
  prepared       the start of the cluster was interrupted: run node init again
  other-cluster  it is a member of another cluster, or of one with another number of nodes
  no-cluster     it is a member of no cluster, or has lost everything: see node init and node admit
  same-server    it is the same server as another of the nodes
  unreachable    it doesn't answer

counters_behind is the number of names whose counter on this node is below the highest of all \
voting nodes; a name that is being locked may be among them for a moment. lag_ms is how long the \
node took to answer. persistence shows which of its answers are on disk: always, not-on-rewrite, \
every-second, whenever, snapshots, nothing, or unseen. durable is whether it keeps its vote when \
it restarts.

The exit code is 69 if no majority may vote.";

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    nodes: LockService,
}

impl Status {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let seen = self.nodes.operator()?.inspect_with_counters().await?;
        for node in &seen.nodes {
            print(node)?;
        }
        print(&seen.cluster)?;
        if seen.cluster.voting < seen.cluster.majority {
            return Err(Failure::Unavailable("no majority of the nodes may vote".to_owned()));
        }
        Ok(())
    }
}
