//! The ballot on which change of the members ends an epoch.
//!
//! Two operators may propose different changes at the same time. Both would split the old members,
//! and each new epoch could issue the same tokens. So the old members decide, once: this is
//! [Paxos](https://lamport.azurewebsites.net/pubs/paxos-simple.pdf) for a single value, and to accept
//! a change closes the old epoch on that node. A change that was accepted somewhere may have been
//! decided, so a later ballot adopts it.
//!
//! A node that restarts forgets its promises. It takes part again only after an admission, which
//! copies the highest promises of a majority of other members that still vote in the epoch. Three
//! rules follow. Each was found by the model (`redlock-model`, `change`), and two changes are
//! decided without it:
//! - A ballot proposes only if a majority of the processes still runs that have promised.
//! - A change is decided only once a majority has it at the same time, and from the same ballot.
//! - Records alone do not show that. So the operator notes it on the nodes, and nobody is admitted
//!   to an epoch before that.

use std::{collections::HashSet, time::Duration};

use redis::{ParsingError, RedisResult, Value, from_redis_value};
use tokio::time::sleep;

use super::{
    candidate::why_no_vote,
    places::{Answer, Places},
};
use crate::{
    redis::{
        keys::Keys,
        script::{Script, script},
    },
    redlock::{
        epoch::{Epoch, Previous, SEPARATOR, split_members},
        majority::majority,
        peer::{Peer, PeerError},
    },
};

static PROMISE: Script = script!("../run_id.lua", "promise.lua");
static CLOSE: Script = script!("../run_id.lua", "close.lua");
static DECIDED: Script = script!("../run_id.lua", "decided.lua");

/// The digits of a ballot's number. Those of its proposer follow.
const DIGITS: usize = 15;
/// How many ballots an operator starts before it reports that another one is at work.
const MOST_BALLOTS: u32 = 20;
/// The longest pause between two ballots.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A node's answer to the request for a promise.
enum Promise {
    /// It has promised. It may have accepted a change at an earlier ballot.
    Promised(Option<Accepted>),
    /// It has promised a higher ballot to another operator.
    Higher(String),
    /// It does not take part.
    None,
}

struct Accepted {
    ballot: String,
    change: String,
    members: Vec<String>,
}

/// No change is decided, as far as this operator knows.
pub(super) struct Undecided {
    pub(super) reason: String,
    /// Whether a member may have accepted a change. Then a majority may have, or may do so later.
    pub(super) may_be_half_done: bool,
}

/// Decides which change ends an epoch, and returns the epoch that it begins. That is the proposed
/// one, unless another may have been decided before.
pub(super) async fn decide(
    places: &Places,
    old: &Previous,
    proposal: &Epoch,
) -> Result<Epoch, Undecided> {
    let proposer = fastrand::u128(..);
    let mut number = 1;
    let mut may_be_half_done = false;
    for _ in 0..MOST_BALLOTS {
        // Digits alone, and always as many: Redis orders text by its locale.
        let ballot = format!("{number:0DIGITS$}{proposer:039}");
        match run_ballot(places, old, proposal, &ballot, &mut may_be_half_done).await {
            Ok(Ballot::Decided(epoch)) => return Ok(epoch),
            Ok(Ballot::Overtaken(by)) => number = number.max(number_of(&by)) + 1,
            Err(reason) => return Err(Undecided { reason, may_be_half_done }),
        }
        sleep(LONGEST_PAUSE.mul_f64(fastrand::f64())).await;
    }
    let reason = format!(
        "in {MOST_BALLOTS} ballots, no majority of the old members accepted one change: they restart \
         or do not answer, or other operators change the members at the same time"
    );
    Err(Undecided { reason, may_be_half_done })
}

/// The result of one ballot.
enum Ballot {
    Decided(Epoch),
    /// A node had promised this ballot to another operator, or has restarted.
    Overtaken(String),
}

/// Runs one ballot, and notes if a member may have accepted a change.
///
/// # Errors
/// The reason why no ballot can succeed now.
async fn run_ballot(
    places: &Places,
    old: &Previous,
    proposal: &Epoch,
    ballot: &str,
    may_be_half_done: &mut bool,
) -> Result<Ballot, String> {
    let majority = majority(old.members.len());

    // 1. A majority of the old members promises to accept no lower ballot.
    let (mut promised, mut accepted, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let mut overtaken = None;
    for answer in places.connect_to(&old.members).await {
        match promise(answer, old, ballot).await {
            Ok((peer, Promise::Promised(earlier))) => {
                promised.push(peer);
                accepted.extend(earlier);
            }
            Ok((_, Promise::Higher(higher))) => overtaken = overtaken.max(Some(higher)),
            Ok((peer, Promise::None)) => failed.push(why_no_vote(&Ok(peer))),
            Err(error) => failed.push(error.to_string()),
        }
    }
    *may_be_half_done |= !accepted.is_empty();
    if promised.len() < majority {
        return match overtaken {
            Some(by) => Ok(Ballot::Overtaken(by)),
            None => Err(too_few(majority, &failed)),
        };
    }
    // A process that has ended forgot its promise, perhaps before the last one was made.
    let promised = still_running(promised).await;
    if promised.len() < majority {
        return Ok(Ballot::Overtaken(ballot.to_owned()));
    }

    // 2. What the highest earlier ballot has proposed may be decided already. Then it is proposed
    //    again, instead of another change.
    let earlier = accepted.into_iter().max_by(|one, other| one.ballot.cmp(&other.ballot));
    let proposal = match earlier {
        Some(Accepted { change, members, .. }) => Epoch { change, members, ..proposal.clone() },
        None => {
            check_majority_stays(&promised, proposal)?;
            proposal.clone()
        }
    };

    // 3. The nodes that have promised accept it, and close the old epoch. A node may do so although
    //    its answer is lost.
    *may_be_half_done = true;
    let mut closed = Vec::new();
    for mut peer in promised {
        if let Ok(true) = close(&mut peer, old, &proposal, ballot).await {
            closed.push(peer);
        }
    }

    // 4. The change is decided if a majority has it at the same time, from this ballot. A node that
    //    restarted since its answer may have lost it.
    let mut closed = still_running(closed).await;
    let is_from_this_ballot = |peer: &Peer| {
        let record = peer.record.as_ref();
        record.is_some_and(|record| {
            record.epoch.change == proposal.change && record.ballots.accepted == ballot
        })
    };
    closed.retain(is_from_this_ballot);
    if closed.len() < majority {
        return Ok(Ballot::Overtaken(ballot.to_owned()));
    }

    // 5. Note it. Where that fails, an admission or the next ballot does it.
    for mut peer in closed {
        let call = DECIDED.with([Keys::NODE.to_owned()]).arg(&peer.run_id).arg(&proposal.change);
        let _: RedisResult<i64> = call.in_full().query_async(&mut peer.connection).await;
    }
    Ok(Ballot::Decided(proposal))
}

/// Reads the records again. Keeps the nodes whose processes are still the same, and may vote.
async fn still_running(peers: Vec<Peer>) -> Vec<Peer> {
    let mut running = Vec::new();
    // A process has one vote, however it was reached.
    let mut processes = HashSet::new();
    for mut peer in peers {
        let before = peer.run_id.clone();
        if peer.read_again().await.is_ok()
            && peer.run_id == before
            && peer.admitted_as().is_some()
            && processes.insert(before)
        {
            running.push(peer);
        }
    }
    running
}

/// Checks that a majority of the new members are old ones that vote. Until the others are admitted,
/// nothing could be acquired without them, and nobody could be admitted.
fn check_majority_stays(promised: &[Peer], proposal: &Epoch) -> Result<(), String> {
    let stays = |peer: &&Peer| peer.admitted_as().is_some_and(|member| proposal.has_member(member));
    let staying = promised.iter().filter(stays).count();
    if staying >= proposal.majority() {
        return Ok(());
    }
    Err(format!(
        "{} of the members that stay must vote, and {staying} can: wait until all members vote that \
         were added before",
        proposal.majority()
    ))
}

/// Asks a node for its promise.
async fn promise(
    answer: Answer,
    old: &Previous,
    ballot: &str,
) -> Result<(Peer, Promise), PeerError> {
    let mut peer = answer?;
    let call = PROMISE.with([Keys::NODE.to_owned()]).arg(&peer.run_id).arg(&old.change).arg(ballot);
    let reply = call.in_full().query_async::<Vec<Value>>(&mut peer.connection).await;
    let reply = reply.map_err(|error| peer.error(&error))?;
    let promise = Promise::parse(reply).map_err(|error| peer.error(&error.into()))?;
    Ok((peer, promise))
}

impl Promise {
    fn parse(reply: Vec<Value>) -> Result<Self, ParsingError> {
        let mut parts = reply.into_iter();
        let number: i64 = from_redis_value(parts.next().unwrap_or(Value::Nil))?;
        let texts: Vec<String> = parts.map(from_redis_value).collect::<Result<_, _>>()?;
        Ok(match (number, <[String; 3]>::try_from(texts)) {
            (1, Ok([ballot, change, members])) => {
                Self::Promised(Some(Accepted { ballot, change, members: split_members(&members) }))
            }
            (1, Err(_)) => Self::Promised(None),
            (0, Err(higher)) => Self::Higher(higher.concat()),
            _ => Self::None,
        })
    }
}

/// Asks a node to accept a change. Returns whether it has.
async fn close(
    peer: &mut Peer,
    old: &Previous,
    proposal: &Epoch,
    ballot: &str,
) -> RedisResult<bool> {
    let old_members = old.members.join(SEPARATOR);
    let call = CLOSE.with([Keys::NODE.to_owned()]).arg(&peer.run_id).arg(&old.change);
    let call = call.arg(old_members).arg(ballot).arg(proposal.number).arg(&proposal.change);
    let call = call.arg(proposal.joined_members());
    call.in_full().query_async(&mut peer.connection).await
}

fn number_of(ballot: &str) -> u64 {
    ballot.get(..DIGITS).and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn too_few(majority: usize, failed: &[String]) -> String {
    format!("{majority} of the old members must vote ({})", failed.join("; "))
}
