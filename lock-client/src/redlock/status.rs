//! The state of a lock on several nodes.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use fence::ResourceName;
use tokio::time::timeout;

use super::{node_error::NodeError, nodes::Nodes, patience::Request, script, tally::is_undecided};
use crate::{
    backend::{BackendError, HeldLock, Status},
    clock::Moment,
    redis::{InvalidReply, keys::Keys, status as parse_status},
};

/// How long a status waits for the nodes that do not decide it.
const COUNTING_PATIENCE: Duration = Duration::from_millis(100);

/// The reply of the script `status.lua`.
type StatusReply = (Option<String>, i64, Option<u64>);

/// The state of a lock on one node.
struct NodeStatus {
    status: Status,
    /// The node's counter before the owner took it.
    floor: u64,
}

impl NodeStatus {
    fn parse(
        name: &ResourceName,
        (lock, remaining, counter): StatusReply,
    ) -> Result<Self, InvalidReply> {
        let floor = lock.as_deref().and_then(|lock| lock.split(' ').nth(3)?.parse().ok());
        // Redlock has no queue.
        let status = parse_status(name, (lock, remaining, counter, 0))?;
        Ok(Self { status, floor: floor.unwrap_or_default() })
    }

    /// Returns the lock on the node, and its floor.
    fn held(&self) -> Option<(&HeldLock, u64)> {
        Some((self.status.held.as_ref()?, self.floor))
    }
}

/// Reads the state of a lock from the nodes.
pub(super) async fn read(
    nodes: &Arc<Nodes>,
    name: &ResourceName,
    keys: Keys,
) -> Result<Status, BackendError> {
    let call = move |_, vote: &_| script::status(&keys, vote);
    let mut answers = nodes.ask_all(Request::Vote, call);
    let (mut states, mut errors) = (Vec::new(), Vec::new());
    let (mut status, mut decided) = (None, None);
    loop {
        // A node that could not answer may have the lock, too.
        let outstanding = nodes.len() - states.len();
        status = combine(&states, outstanding, nodes.majority()).or(status);
        // The other answers only complete the number of nodes.
        let until = status
            .is_some()
            .then(|| *decided.get_or_insert_with(|| Moment::now() + COUNTING_PATIENCE));
        let answer = match until {
            Some(until) => timeout(until.remaining(), answers.recv()).await.ok().flatten(),
            None => answers.recv().await,
        };
        match answer {
            Some((node, Ok(answer))) => match NodeStatus::parse(name, answer) {
                Ok(state) => states.push(state),
                Err(invalid) => errors.push((node, NodeError::from(invalid))),
            },
            Some((node, Err(error))) => errors.push((node, error)),
            None => return status.ok_or_else(|| nodes.no_majority(&errors)),
        }
    }
}

/// Combines the states on the nodes that have answered. The lock is held if one holder has a
/// majority, and until it has no majority any more. Returns `None` while the outstanding nodes
/// decide.
///
/// A holder is new for every round, so it identifies the owner. On nodes that the owner has joined,
/// the grant may be another. Such a node counts once a majority has sealed a token above its floor.
fn combine(answers: &[NodeStatus], outstanding: usize, majority: usize) -> Option<Status> {
    if answers.len() < majority {
        return None;
    }
    let held: Vec<_> = answers.iter().filter_map(NodeStatus::held).collect();
    let same_holder = |one: &HeldLock| -> Vec<_> {
        let holder = &one.ownership.holder;
        held.iter().filter(|(other, _)| other.ownership.holder == *holder).collect()
    };
    let most = held.iter().map(|(one, _)| same_holder(one)).max_by_key(Vec::len);
    let most = most.unwrap_or_default();
    if is_undecided(most.len(), outstanding, majority) {
        return None;
    }
    let held = (most.len() >= majority).then(|| {
        let mut remaining: Vec<_> = most.iter().map(|(held, _)| held.remaining).collect();
        remaining.sort_by_key(|remaining| Reverse(remaining.unwrap_or(Duration::MAX)));
        let mut tokens: Vec<_> = most.iter().map(|(held, _)| held.token).collect();
        tokens.sort_by_key(|token| Reverse(*token));
        let sealed = tokens[majority - 1].as_u64();
        HeldLock {
            token: tokens[0],
            ownership: most[0].0.ownership.clone(),
            remaining: remaining[majority - 1],
            since_ms: None,
            label: String::new(),
            nodes: Some(most.iter().filter(|(_, floor)| *floor <= sealed).count()),
        }
    });
    let last_token = answers.iter().filter_map(|answer| answer.status.last_token).max();
    Some(Status { held, last_token, queued: 0 })
}
