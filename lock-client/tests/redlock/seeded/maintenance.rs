//! An operator at work while clients use the cluster: nodes restart and are admitted again, and members
//! are replaced.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use lock_client::redlock::operator::{Operator, OperatorError};
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};
use testbed::{Redis, RedlockNodes, wait::until_async};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(60);
/// How long the operator waits for an answer. A busy machine is no silent server.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the operator has done what.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) restarts: usize,
    pub(super) replacements: usize,
}

/// Maintains a cluster that starts with the first nodes, until the clients are done.
pub(super) async fn maintain(
    nodes: &RedlockNodes,
    mut members: Vec<usize>,
    mut random: StdRng,
    has_done_both: &AtomicBool,
    done: &AtomicBool,
) -> Work {
    let mut work = Work::default();
    while !done.load(Ordering::Relaxed) {
        let spare = (0..nodes.nodes().len()).find(|node| !members.contains(node));
        if random.random() {
            let &member = members.choose(&mut random).unwrap();
            restart(&nodes.nodes()[member]).await;
            admit(nodes, &members, member, None).await;
            work.restarts += 1;
        } else {
            let place = random.random_range(..members.len());
            let new = spare.expect("there are more nodes than members");
            let old = std::mem::replace(&mut members[place], new);
            admit(nodes, &members, new, Some(old)).await;
            work.replacements += 1;
        }
        let both = work.restarts > 0 && work.replacements > 0;
        has_done_both.store(both && work.restarts + work.replacements > 3, Ordering::Relaxed);
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

/// Admits a node, in place of another one if that is given. On a busy machine, a node may not answer in
/// time.
async fn admit(nodes: &RedlockNodes, members: &[usize], node: usize, instead_of: Option<usize>) {
    let operator = Operator::new(&urls(nodes, members)).unwrap().answer_within(ANSWER_TIMEOUT);
    let url = nodes.nodes()[node].url();
    let instead_of = instead_of.map(|old| nodes.nodes()[old].url());
    let admitted = async || match operator.admit(&url, instead_of.as_deref(), drop).await {
        Ok(_) => Ok(true),
        Err(OperatorError::Unavailable(_)) => Ok(false),
        Err(error) => Err(error.into()),
    };
    until_async(PATIENCE, admitted).await.unwrap();
}
