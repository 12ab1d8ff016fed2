//! An operator at work while clients use the cluster: nodes restart and are admitted again, members
//! are replaced, and three become five.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use lock_client::redlock::operator::{Admission, Operator, OperatorError};
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};
use testbed::{Redis, RedlockNodes, wait::until_async};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(60);

/// How often the operator has done what.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) restarts: usize,
    pub(super) replacements: usize,
    pub(super) growths: usize,
}

/// Maintains a cluster that starts with the first three nodes, until the clients are done.
pub(super) async fn maintain(
    nodes: &RedlockNodes,
    mut random: StdRng,
    has_grown: &AtomicBool,
    done: &AtomicBool,
) -> Work {
    let (mut members, mut work) = (vec![0, 1, 2], Work::default());
    while !done.load(Ordering::Relaxed) {
        let spare = (0..nodes.nodes().len()).find(|node| !members.contains(node));
        // Growth comes after both, so that no run lacks one of them.
        let both = work.restarts > 0 && work.replacements > 0;
        let has_worked = both && work.restarts + work.replacements >= 3;
        match random.random_range(0..2) {
            _ if members.len() == 3 && has_worked => {
                let new: Vec<_> = (0..nodes.nodes().len())
                    .filter(|node| !members.contains(node))
                    .take(2)
                    .collect();
                change(nodes, &members, &new, &[]).await;
                members.extend(&new);
                for node in new {
                    admit(nodes, &members, node).await;
                }
                work.growths += 1;
                has_grown.store(true, Ordering::Relaxed);
            }
            0 => {
                let &member = members.choose(&mut random).unwrap();
                restart(&nodes.nodes()[member]).await;
                admit(nodes, &members, member).await;
                work.restarts += 1;
            }
            _ => {
                let place = random.random_range(..members.len());
                let new = spare.expect("there are more nodes than members");
                change(nodes, &members, &[new], &[members[place]]).await;
                members[place] = new;
                admit(nodes, &members, new).await;
                work.replacements += 1;
            }
        }
        sleep(Duration::from_millis(random.random_range(0..300))).await;
    }
    work
}

fn urls(nodes: &RedlockNodes, which: &[usize]) -> Vec<String> {
    which.iter().map(|&node| nodes.nodes()[node].url()).collect()
}

/// Restarts a node's process without its data.
async fn restart(node: &Redis) {
    let before = node.info("run_id").await.unwrap();
    // It ends without an answer.
    node.command::<()>(&["DEBUG", "RESTART"]).await.unwrap_err();
    let is_another = async || Ok(node.info("run_id").await.is_ok_and(|run_id| run_id != before));
    until_async(PATIENCE, is_another).await.unwrap();
}

async fn change(nodes: &RedlockNodes, members: &[usize], add: &[usize], remove: &[usize]) {
    let (add, remove) = (urls(nodes, add), urls(nodes, remove));
    let changed = async || {
        let mut operator = Operator::new(&urls(nodes, members)).unwrap();
        match operator.change_members(&add, &remove).await {
            Ok(_) => Ok(true),
            Err(OperatorError::Unavailable(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    until_async(PATIENCE, changed).await.unwrap();
}

/// Admits a node. On a busy machine, a node may not answer in time, here and above.
async fn admit(nodes: &RedlockNodes, members: &[usize], node: usize) {
    let operator = Operator::new(&urls(nodes, members)).unwrap();
    let url = nodes.nodes()[node].url();
    let admitted = async || match operator.request_admission(&url).await {
        Ok(Admission::AlreadyVoting) => Ok(true),
        Ok(Admission::Pending(admission)) => Ok(admission.finish().await.is_ok()),
        Err(OperatorError::Unavailable(_)) => Ok(false),
        Err(error) => Err(error.into()),
    };
    until_async(PATIENCE, admitted).await.unwrap();
}
