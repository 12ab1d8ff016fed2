//! The members of etcd or ZooKeeper that a URL names.

use crate::check::{Check, Verdict};

pub(crate) const QUORUM: &str = "quorum";

/// A member that does not answer, for this reason.
pub(crate) fn silent(reason: &String) -> Check {
    Check::bad(
        Verdict::Warning,
        QUORUM,
        reason,
        "no token; but no lock can be acquired when a majority of the members is down",
        "start it again, or replace it and change the URL",
    )
}

/// The URL names fewer members than there are.
pub(crate) fn unnamed(named: usize, members: usize) -> Check {
    Check::bad(
        Verdict::Warning,
        QUORUM,
        format!("the URL names {named} of {members} members"),
        "no token; but clients find no other member when the named ones are down",
        "name all members, with commas between them",
    )
}
