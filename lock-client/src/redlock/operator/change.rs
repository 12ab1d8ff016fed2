//! A change of the members: replacement and growth.
//!
//! 1. **Close.** The old members decide on the change by a [ballot](super::ballot). Each that accepts
//!    it rejects all votes of the old epoch from then on. Once a majority has, nothing can be
//!    granted, sealed or renewed in the old epoch. The old members that stay vote in the new one at
//!    once, and leases continue there.
//! 2. **Wait** for the longest ttl, so that every lock of the old epoch has expired that was not
//!    renewed in the new one. It may be held on old members that are no members any more.
//! 3. **Copy** the highest counters from a majority of the new members that vote. At first these are
//!    old members that have closed. Any majority of the old members shares a node with them, and
//!    that node knows every token of the old epoch.
//! 4. **Admit** the new node, if it is still the same process.
//!
//! The steps after the first are those of the [admission](super::admission) of a restarted node. So
//! a new node grants nothing, and joins nothing, before it knows all counters.

use fence::Holder;

use super::{
    ballot::{self, Undecided},
    candidate::why_no_vote,
    error::OperatorError,
    places::{Answer, Answers, Places, check_distinct},
};
use crate::{
    redis::keys::Keys,
    redlock::{
        epoch::{Epoch, Previous},
        majority::majority,
        membership::{Record, Standing},
        node_urls::NodeUrl,
        peer::Peer,
    },
};

/// Decides that nodes are added to the members, and others removed. Returns the addresses of the new
/// members.
pub(super) async fn change_members<U: AsRef<str>>(
    places: &mut Places,
    add: &[U],
    remove: &[U],
) -> Result<Vec<String>, OperatorError> {
    let [add, remove] = [parse(places, add)?, parse(places, remove)?];
    let mut answers = places.connect_all().await;
    answers.check_distinct()?;
    // A change may be half done. It can be finished, but only that one.
    let was_half_done = answers.epoch.is_none() && finish(places).await?.is_some();
    if was_half_done {
        answers = places.connect_all().await;
    }
    let Some(current) = answers.epoch.clone() else { return Err(no_majority(&answers.members)) };
    let is_wanted = |members: &[String]| {
        add.iter().all(|url| members.contains(&url.address))
            && !remove.iter().any(|url| members.contains(&url.address))
    };
    if was_half_done && !is_wanted(&current.members) {
        return Err(was_finished(&current));
    }
    let previous = answers.previous_members();
    let members = members_after(&current, previous, &add, &remove)?;
    if members == current.members {
        places.note_added(add);
        return Ok(members);
    }
    let mut peers = Vec::new();
    for url in add.iter().filter(|url| !current.has_member(&url.address)) {
        let mut peer = places.connect(url).await?;
        check_addition(&mut peer, &current).await?;
        peers.push(peer);
    }
    check_distinct(answers.members.iter().flatten().chain(&peers))?;

    let old = Previous { change: current.change, members: current.members };
    let change = Holder::random().as_str().to_owned();
    let number = current.number + 1;
    let proposal = Epoch { number, change, members, ..current };
    let decided = ballot::decide(places, &old, &proposal).await.map_err(not_decided)?;
    if !is_wanted(&decided.members) {
        return Err(was_finished(&decided));
    }
    places.note_added(add);
    Ok(decided.members)
}

/// Connects to all members. First finishes a change of them that is half done, or that a member has
/// missed.
pub(super) async fn connect_after_changes(places: &Places) -> Result<Answers, OperatorError> {
    let mut answers = places.connect_all().await;
    // A server that is named twice would be a voter twice.
    answers.check_distinct()?;
    if answers.epoch.is_none() || has_unfinished_change(&answers.members) {
        match finish(places).await {
            Ok(Some(_)) => answers = places.connect_all().await,
            Ok(None) => {}
            Err(error) => answers.unfinished = Some(error),
        }
    }
    Ok(answers)
}

/// Whether a member has accepted a change that most of them have not, or has not accepted the last
/// one and still could.
fn has_unfinished_change(members: &[Answer]) -> bool {
    fn ended(record: &Record) -> Option<&str> {
        Some(&record.previous.as_ref()?.change)
    }
    let records = |standing| {
        let peers = members.iter().flatten().filter(move |peer| peer.standing == standing);
        peers.filter_map(|peer| peer.record.as_ref())
    };
    let current = records(Standing::Voting).next().map(|record| record.epoch.change.as_str());
    let last_ended = records(Standing::Voting).find_map(ended);
    records(Standing::OtherEpoch).any(|record| {
        let missed = last_ended.is_some_and(|last| record.epoch.change == last);
        let accepted = ended(record).is_some_and(|own| [current, last_ended].contains(&Some(own)));
        missed || accepted
    })
}

/// Finishes the last change of the members, if it is half done: closes the old epoch on the old
/// members that answer. Returns the epoch that the change begins; `None` if no member knows of a
/// change.
async fn finish(places: &Places) -> Result<Option<Epoch>, OperatorError> {
    let answers = places.connect_everywhere().await;
    let records = || answers.iter().flatten().filter_map(|peer| peer.record.as_ref());
    let changes = records().filter_map(|record| Some((record.previous.as_ref()?, &record.epoch)));
    let Some((old, proposal)) = changes.max_by_key(|(_, epoch)| epoch.number) else {
        return Ok(None);
    };
    let decided = ballot::decide(places, old, proposal).await;
    let is_decided = records().any(|record| record.is_decided && record.epoch == *proposal);
    decided.map(Some).map_err(|Undecided { reason, .. }| match is_decided {
        true => no_majority(&answers),
        false => OperatorError::Unavailable(format!(
            "a change of the members is half done, and could not be finished: {reason}. Run \
             `lock-client node change` again, or `lock-client node admit --watch`"
        )),
    })
}

fn parse<U: AsRef<str>>(places: &Places, urls: &[U]) -> Result<Vec<NodeUrl>, OperatorError> {
    urls.iter().map(|url| places.parse(url.as_ref())).collect()
}

/// Returns the members after a change. The last change can be repeated, and changes nothing then.
/// Otherwise a node that is removed must be a member: a misspelt one would turn a replacement into
/// growth.
fn members_after(
    current: &Epoch,
    previous: &[String],
    add: &[NodeUrl],
    remove: &[NodeUrl],
) -> Result<Vec<String>, OperatorError> {
    let is_added = |url: &&NodeUrl| add.iter().any(|added| added.address == url.address);
    if let Some(both) = remove.iter().find(is_added) {
        let problem = format!("{} can't be both added and removed", both.address);
        return Err(OperatorError::Invalid(problem));
    }
    if let Some(stranger) = remove.iter().find(|url| !current.has_member(&url.address)) {
        let repeated = replace(previous, add, remove);
        let is_current = repeated.iter().all(|member| current.has_member(member));
        if is_current && repeated.len() == current.members.len() {
            return Ok(current.members.clone());
        }
        return Err(OperatorError::Invalid(format!(
            "{} is no member; the members are {}",
            stranger.address,
            current.members.join(", ")
        )));
    }
    let members = replace(&current.members, add, remove);
    let number = members.len();
    if number < current.members.len() || number.is_multiple_of(2) {
        return Err(OperatorError::Invalid(format!(
            "there would be {number} members ({}): a cluster keeps its number of nodes ({}) or \
             grows, and has an odd number",
            members.join(", "),
            current.members.len()
        )));
    }
    let most = number - majority(number);
    let new = members.iter().filter(|member| !current.has_member(member)).count();
    if new > most {
        return Err(OperatorError::Invalid(match (most, number > current.members.len()) {
            (1, false) => "among three members, replace one at a time".to_owned(),
            (_, false) => format!("among {number} members, replace at most {most} at a time"),
            (_, true) => {
                format!("at most {most} of {number} members can be new: add fewer at a time")
            }
        }));
    }
    Ok(members)
}

/// Returns the members without those that are removed, and with those that are added.
fn replace(members: &[String], add: &[NodeUrl], remove: &[NodeUrl]) -> Vec<String> {
    let is_removed = |member: &String| remove.iter().any(|url| url.address == *member);
    let mut members: Vec<_> = members.iter().filter(|m| !is_removed(m)).cloned().collect();
    for url in add {
        if !members.contains(&url.address) {
            members.push(url.address.clone());
        }
    }
    members
}

/// Checks that a node can be added to a cluster.
async fn check_addition(peer: &mut Peer, current: &Epoch) -> Result<(), OperatorError> {
    peer.check_fitness().await?;
    match peer.cluster() {
        Some(other) if other != current.cluster => Err(OperatorError::Invalid(format!(
            "{} belongs to cluster {other}: to move it, delete its key {} first",
            peer.address,
            Keys::NODE
        ))),
        _ => Ok(()),
    }
}

/// The error that a proposed change is not decided.
fn not_decided(Undecided { reason, may_be_half_done }: Undecided) -> OperatorError {
    OperatorError::Unavailable(match may_be_half_done {
        true => format!(
            "the change of the members may be half done: run the same command again, or \
             `lock-client node admit --watch` finishes it ({reason})"
        ),
        false => format!("the members can't be changed: {reason}"),
    })
}

fn no_majority(answers: &[Answer]) -> OperatorError {
    let answers: Vec<_> = answers.iter().map(why_no_vote).collect();
    OperatorError::Unavailable(format!(
        "no majority of the members may vote in one epoch: {}",
        answers.join("; ")
    ))
}

fn was_finished(epoch: &Epoch) -> OperatorError {
    OperatorError::Unavailable(format!(
        "another change of the members was under way, and has been finished: they are now {}. If \
         that is not what you want, change them again",
        epoch.members.join(", ")
    ))
}
