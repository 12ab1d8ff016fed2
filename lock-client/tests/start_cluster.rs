//! Independent nodes become one lock service.

use std::time::Duration;

use lock_client::{Ttl, redlock::operator::Operator};
use testbed::RedlockNodes;

/// Makes the nodes one lock service, which grants no longer ttl than this.
pub(crate) async fn start_cluster(nodes: &RedlockNodes, max_ttl: Duration) {
    let operator = Operator::new(&nodes.urls()).unwrap();
    operator.start_cluster(Ttl::new(max_ttl).unwrap()).await.unwrap();
}
