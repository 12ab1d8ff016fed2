//! Who changes what nodes know, behind the backs of the clients.

use std::{convert::Infallible, time::Duration};

use fence::ResourceName;
use lab::servers::{Redis, RedlockNodes};
use rand::{RngExt, rngs::StdRng};
use tokio::time::sleep;

/// What is done to the nodes of a lock, now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// Nothing.
    None,
    /// On one of them the lock is over early, as if its clock jumped.
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
        loop {
            sleep(Duration::from_millis(random.random_range(10..100))).await;
            match self {
                Self::None => {}
                Self::Jump => end(&nodes[random.random_range(..nodes.len())], name).await,
                Self::AllJump => {
                    for node in nodes {
                        end(node, name).await;
                    }
                }
                Self::CountersLost => {
                    for node in &nodes[..=nodes.len() / 2] {
                        node.set(&format!("fenced:{{{name}}}:token"), "0").await.unwrap();
                    }
                }
            }
        }
    }
}

/// Ends a lock on a node.
async fn end(node: &Redis, name: &ResourceName) {
    node.command::<u8>(&["DEL", &format!("fenced:{{{name}}}:lock")]).await.unwrap();
}
