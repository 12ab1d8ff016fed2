//! The start of a Redlock cluster.

use std::time::Duration;

use lock_client::{Ttl, redlock::operator::Operator};
use testbed::RedlockNodes;

/// Starts a cluster of these nodes. It grants no longer ttl than `max_ttl`.
pub(crate) async fn start_cluster(nodes: &RedlockNodes, max_ttl: Duration) {
    let operator = Operator::new(&nodes.urls()).unwrap();
    operator.start_cluster(Ttl::new(max_ttl).unwrap()).await.unwrap();
}
