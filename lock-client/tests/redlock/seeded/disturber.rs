//! Who changes what nodes know, behind the backs of the clients.

use std::{convert::Infallible, time::Duration};

use fence::ResourceName;
use rand::{RngExt, rngs::StdRng};
use testbed::{Redis, RedlockNodes};
use tokio::time::sleep;

/// What is done to the nodes of a lock, now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// One of them has counted on, as for rounds that came to nothing: so that tokens have to be sealed.
    Uneven,
    /// Besides, on one of them the lock is over early, as if its clock jumped.
    Jump,
    /// On all of them the lock is over early.
    AllJump,
    /// A majority loses what it counted.
    CountersLost,
}

impl Disturbance {
    /// Disturbs as long as this is polled.
    pub(super) async fn disturb(
        self,
        nodes: &RedlockNodes,
        name: &ResourceName,
        mut random: StdRng,
    ) -> Infallible {
        let nodes = nodes.nodes();
        let longest = match self {
            // Before most leases end by themselves.
            Self::AllJump => 10,
            _ => random.random_range(2..100),
        };
        loop {
            sleep(Duration::from_millis(random.random_range(1..=longest))).await;
            let node = &nodes[random.random_range(..nodes.len())];
            match self {
                Self::Jump if random.random_bool(0.5) => end(node, name).await,
                Self::Uneven | Self::Jump => count_on(node, name).await,
                Self::AllJump => {
                    for node in nodes {
                        end(node, name).await;
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

/// Counts on, on a node that has begun to.
async fn count_on(node: &Redis, name: &ResourceName) {
    let script = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('INCR', KEYS[1])";
    node.command::<Option<i64>>(&["EVAL", script, "1", &counter(name)]).await.unwrap();
}

/// Ends a lock on a node.
async fn end(node: &Redis, name: &ResourceName) {
    node.command::<u8>(&["DEL", &format!("fenced:{{{name}}}:lock")]).await.unwrap();
}

/// The key of a lock's counter.
pub(super) fn counter(name: &ResourceName) -> String {
    format!("fenced:{{{name}}}:token")
}
