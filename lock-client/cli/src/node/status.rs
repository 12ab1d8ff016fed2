//! `lock-client node status`.

use clap::Args;

use crate::{Failure, LockService, events::print};

pub(super) const HELP: &str = "\
A line for each node, and then one for the cluster. A node's state is one of these:
  voting         it may vote
  restarted      it was started anew, and may have lost what it counted: see node admit
  prepared       the cluster was not started to the end: run node init again
  other-cluster  it belongs to another cluster, or to one of another number of nodes
  no-cluster     it belongs to none, or has lost everything: see node init and node admit
  same-server    it is one server with another of the nodes
  unreachable    it doesn't answer

counters_behind tells of how many names its counter is below the highest of all voting nodes; a name \
that is being locked may be among them for a moment. lag_ms is how long it took to answer; persistence \
what is on disk of what it has answered: always, not-on-rewrite, every-second, whenever, snapshots, \
nothing, or unseen; durable whether it keeps its vote when it restarts.

The exit code is 69 if no majority may vote.";

#[derive(Args, Debug)]
pub(crate) struct StatusOf {
    #[command(flatten)]
    nodes: LockService,
}

impl StatusOf {
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
