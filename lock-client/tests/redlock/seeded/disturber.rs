//! Changes of the nodes' data that no client asked for.

use std::{convert::Infallible, time::Duration};

use fence::ResourceName;
use rand::{RngExt, rngs::StdRng};
use testbed::{Redis, RedlockNodes};
use tokio::time::sleep;

/// What happens to the nodes, at random times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// The counter of one node increases, as after a round without a majority. Then tokens need a
    /// seal.
    Uneven,
    /// The same, while an operator restarts and replaces nodes. So there may be no majority for a
    /// while.
    Maintained,
    /// The same as `Uneven`; or the lock on one node expires early, as if its clock jumped.
    Jump,
    /// The lock expires early on all nodes.
    AllJump,
    /// A majority loses its counters.
    CountersLost,
}

impl Disturbance {
    /// Disturbs the nodes as long as this future is polled.
    pub(super) async fn disturb(
        self,
        nodes: &RedlockNodes,
        name: &ResourceName,
        mut random: StdRng,
    ) -> Infallible {
        let nodes = nodes.nodes();
        let longest = match self {
            // Sooner than most leases end.
            Self::AllJump => 10,
            _ => random.random_range(2..100),
        };
        loop {
            sleep(Duration::from_millis(random.random_range(1..=longest))).await;
            let node = &nodes[random.random_range(..nodes.len())];
            match self {
                Self::Jump if random.random_bool(0.5) => expire(node, name).await,
                Self::Uneven | Self::Maintained | Self::Jump => increment(node, name).await,
                Self::AllJump => {
                    for node in nodes {
                        expire(node, name).await;
                    }
                }
                Self::CountersLost => {
                    for node in &nodes[..=nodes.len() / 2] {
                        node.set(&counter(name), "0").await.unwrap();
                    }
                }
            }
        }
    }
}

/// Increments the counter of a node that has one.
async fn increment(node: &Redis, name: &ResourceName) {
    let script = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('INCR', KEYS[1])";
    // A node that restarts does not answer.
    let _ = node.command::<Option<i64>>(&["EVAL", script, "1", &counter(name)]).await;
}

/// Makes the lock on a node expire.
async fn expire(node: &Redis, name: &ResourceName) {
    node.command::<u8>(&["DEL", &format!("fenced:{{{name}}}:lock")]).await.unwrap();
}

/// Returns the key of a lock's counter.
pub(super) fn counter(name: &ResourceName) -> String {
    format!("fenced:{{{name}}}:token")
}
