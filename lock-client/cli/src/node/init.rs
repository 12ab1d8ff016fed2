//! `lock-client node init`.

use std::time::Duration;

use clap::Args;
use lock_client::{
    Ttl,
    redlock::operator::{Cluster, CopiedCounters, Operator},
};
use serde::Serialize;

use super::status::verdict;
use crate::{
    acquisition::parse_ttl,
    failure::Failure,
    lock_service::LockService,
    signals::{ENDING, Signals},
    stderr,
    stdout::print,
};

pub(super) const HELP: &str = "\
All nodes must be running. Each must be a server of its own, without a replica, with maxmemory-policy \
noeviction, and a member of no cluster. If init is interrupted, run it again with the same options. A node \
has no vote after a restart until it is admitted: run node admit --watch as a service.

--from starts a cluster with another number of nodes: stop all clients, and name the old cluster's nodes. \
A majority of its voters must answer. They lose their votes. The two may have nodes in common. --again \
starts a cluster again that has lost its majority: stop all clients, start an empty server for each lost \
node, which must never come back, and name all nodes and the id that node status shows. It is none if no \
data are left. Both take the longest ttl. The counters are at or above the highest of the old nodes, and \
after a loss, of the clock. A key that has the name of a counter and is none is skipped, and named.";

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The longest ttl of any lock. A restarted node waits as long. It can't be changed later
    ///
    /// The ttl of run is 30s by default.
    #[arg(long, value_parser = parse_ttl, value_name = "DURATION", default_value = "5m")]
    max_ttl: Ttl,

    /// A node of the old cluster that this one replaces. Give it once for each
    #[arg(long, value_name = "URL")]
    from: Vec<String>,

    /// Start the cluster with this id again, which has lost its majority; node status shows the id
    #[arg(long, value_name = "CLUSTER", conflicts_with = "from")]
    again: Option<String>,
}

/// The result of a start.
#[derive(Serialize)]
struct Started {
    #[serde(flatten)]
    cluster: Cluster,
    /// What was copied, if an old cluster was named.
    #[serde(flatten)]
    copied: Option<CopiedCounters>,
}

impl Init {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let mut signals = Signals::listen(ENDING)?;
        let started = tokio::select! {
            started = self.start(lock_service) => started?,
            signal = signals.next() => return Err(signal.into()),
        };
        print(&started)?;
        // They are a cluster already, if a start was run again. Then some may have no vote: see `node status`.
        verdict(&started.cluster)
    }

    async fn start(&self, lock_service: &LockService) -> Result<Started, Failure> {
        let operator = lock_service.operator()?;
        let report = |remaining: Duration| {
            stderr::print(format!("waiting {remaining:.1?}, until all earlier locks have expired"));
        };
        let (cluster, copied) = if let Some(cluster) = &self.again {
            operator.start_again(cluster, self.max_ttl, report).await?
        } else if self.from.is_empty() {
            let cluster = operator.start_cluster(self.max_ttl).await?;
            return Ok(Started { cluster, copied: None });
        } else {
            let old = lock_service.limited(Operator::new(&self.from)?, Operator::answer_within);
            operator.start_from(&old, self.max_ttl, report).await?
        };
        Ok(Started { cluster, copied: Some(copied) })
    }
}
