//! Renewals and reissues of a lease.

use std::{cmp, sync::Arc};

use fence::Token;

use super::{
    lease::Lease,
    nodes::Nodes,
    regain::Regain,
    script,
    votes::{Counting, ask_majority},
};
use crate::{
    Ttl,
    backend::BackendError,
    clock::Moment,
    redis::{keys::Keys, unix_millis},
};

/// Renews a lease, and returns the token to hand out; `None` if the lease is lost. In the
/// background, the lease then joins the nodes that it does not have.
pub(super) async fn renew(
    nodes: &Arc<Nodes>,
    keys: &Arc<Keys>,
    lease: &Arc<Lease>,
    ttl: Ttl,
) -> Result<Option<Token>, BackendError> {
    let _exchange = lease.exchange.lock().await;
    let valid_until = Moment::now() + ttl.reliable();
    let height = lease.height();
    // 1. Set the ttl on all nodes. A majority of counting nodes must still have the lock.
    let renew = {
        let keys = keys.clone();
        move |own: &_, member: &_| script::renew(&keys, member, own, ttl)
    };
    let counting = Counting::FloorBelow(height);
    let Some((votes, answers)) = ask_majority(nodes, lease, counting, renew).await? else {
        return Ok(None);
    };
    lease.set_valid_until(valid_until);
    let lowest = *votes.numbers.iter().min().expect("a majority is at least one node");
    let highest = *votes.numbers.iter().max().expect("a majority is at least one node");
    // 2. A majority has sealed the lowest token. If a reissue has sealed a higher one on some nodes
    //    only, complete it before that token is returned.
    let mut token = lease.reach(lowest);
    if lowest != highest
        && let Ok(true) = seal(nodes, keys, lease, height, highest).await
    {
        token = lease.reach(highest);
    }
    // 3. Join the other nodes. The caller does not wait for that.
    let regain = Regain::new(nodes.clone(), keys.clone(), lease.clone(), ttl, valid_until);
    nodes.background().spawn(regain.run(votes, answers));
    Ok(Some(token))
}

/// Reissues a lease's token above another, and returns it; `None` if the lease is lost.
pub(super) async fn reissue(
    nodes: &Arc<Nodes>,
    keys: &Arc<Keys>,
    lease: &Arc<Lease>,
    above: Token,
) -> Result<Option<Token>, BackendError> {
    let _exchange = lease.exchange.lock().await;
    let height = lease.height();
    let Some(token) = raise(nodes, keys, lease, above.max(height)).await? else { return Ok(None) };
    let sealed = seal(nodes, keys, lease, height, token).await?;
    Ok(sealed.then(|| lease.reach(token)))
}

/// Reissues a lease's token so that joined nodes with floors up to this one count. The token that
/// was handed out stays.
pub(super) async fn reissue_to_regain(
    nodes: &Arc<Nodes>,
    keys: &Arc<Keys>,
    lease: &Arc<Lease>,
    floor: Token,
) -> Result<(), BackendError> {
    // A renewal that is under way finds these nodes itself.
    let Ok(_exchange) = lease.exchange.try_lock() else { return Ok(()) };
    let height = lease.height();
    let above = cmp::max(floor, height);
    let Some(token) = raise(nodes, keys, lease, above).await? else { return Ok(()) };
    if lease.has_ended() {
        return Ok(());
    }
    lease.regain(token);
    if seal(nodes, keys, lease, height, token).await? {
        lease.reach(token);
    }
    Ok(())
}

/// Raises the counters of a majority above a token, and returns the highest of them: it is above
/// every token that any majority has issued. Returns `None` if the lease is lost.
async fn raise(
    nodes: &Arc<Nodes>,
    keys: &Arc<Keys>,
    lease: &Arc<Lease>,
    above: Token,
) -> Result<Option<Token>, BackendError> {
    let (keys, start) = (keys.clone(), unix_millis());
    let raise = move |own: &_, member: &_| script::raise(&keys, member, own, above, start);
    let raised = ask_majority(nodes, lease, Counting::All, raise).await?;
    let token = raised.and_then(|(votes, _)| votes.numbers.into_iter().max());
    debug_assert!(token.is_none_or(|token| token > above), "the counters were raised");
    Ok(token)
}

/// Seals a token on a majority of the nodes that count for a lease of this height. Without the
/// seal, the next round could find lower counters, and issue the token again. Returns `false` if
/// the lease is lost.
async fn seal(
    nodes: &Arc<Nodes>,
    keys: &Arc<Keys>,
    lease: &Arc<Lease>,
    height: Token,
    token: Token,
) -> Result<bool, BackendError> {
    let keys = keys.clone();
    let seal = move |own: &crate::backend::Ownership, member: &_| {
        script::seal(&keys, member, own, own.grant, token)
    };
    let sealed = ask_majority(nodes, lease, Counting::FloorBelow(height), seal).await?;
    Ok(sealed.is_some())
}
