//! The members of a cluster that a URL names, as the client of the locks has found them.

use crate::check::{Check, Verdict};

const QUORUM: &str = "quorum";

/// A member that the URL names.
#[derive(Clone, Debug)]
pub struct Member<R> {
    /// Its address.
    pub address: String,
    /// What it reports of itself, or why it does not answer. A member without a quorum reports nothing.
    pub report: Result<R, String>,
}

pub(crate) fn reports<R>(members: &[Member<R>]) -> impl Iterator<Item = &R> {
    members.iter().filter_map(|member| member.report.as_ref().ok())
}

/// Checks that the members answer, that they belong together, and that all are named. Those that answer have a quorum,
/// so that a majority is there.
pub(crate) fn quorum<R>(
    members: &[Member<R>],
    belong_together: bool,
    number: &Result<usize, String>,
) -> impl Iterator<Item = Check> {
    let silent = members.iter().filter_map(|member| member.report.as_ref().err()).map(|reason| {
        Check::bad(
            Verdict::Warning,
            QUORUM,
            reason,
            "no token; but no lock can be acquired when a majority of the members is down",
            "start it again, or replace it and change the URL",
        )
    });
    let (named, answering) = (members.len(), reports(members).count());
    let all = match number {
        Ok(number) => format!("there are {number}"),
        Err(error) => format!("how many there are could not be seen: {error}"),
    };
    let all = Check::ok(QUORUM, format!("{answering} of {named} members answer; {all}"))
        .unless(
            belong_together,
            Verdict::Unfit,
            "the members are not all of one cluster: clients that reach different ones hold one lock at the same time",
            "name the members of one cluster",
        )
        .unless(
            number.as_ref().is_ok_and(|number| *number <= named),
            Verdict::Warning,
            "no token; but clients find no member that is not named when the named ones are down",
            "name all members, with commas between them, and let the user read their list: in ZooKeeper, the node \
             /zookeeper/config",
        );
    silent.chain([all])
}
