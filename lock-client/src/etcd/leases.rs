//! The leases by which keys live.

use std::ops::RangeInclusive;

use super::{
    connection::Connection,
    failure::Failure,
    messages::{Header, LeaseReply, LeaseRequest, Streamed},
};
use crate::{backend::BackendError, ttl::Ttl};

/// A lease that is alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alive {
    pub(super) id: i64,
    pub(super) seconds: i64,
    /// The term in which it was kept alive; `None` if it is new. An elected leader gives every lease
    /// its full time, so that a new lease depends on no term.
    term: Option<u64>,
}

impl Alive {
    /// A new lease.
    pub(super) fn granted(id: i64, seconds: i64) -> Self {
        Self { id, seconds, term: None }
    }

    /// Checks that the leader that has kept the lease alive still was the leader when it answered a
    /// later request. A leader that was replaced, and does not know it yet, renews nothing.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] after an election.
    pub(super) fn confirm(self, later: Header, server: &str) -> Result<(), BackendError> {
        match self.term {
            Some(term) if term != later.raft_term => {
                let reason = format!("{server}: a new leader was elected meanwhile");
                Err(BackendError::Unavailable(reason.into()))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the seconds of a ttl.
///
/// # Errors
/// [`BackendError::Invalid`] if they are not whole.
pub(super) fn whole_seconds(ttl: Ttl) -> Result<i64, BackendError> {
    let duration = ttl.as_duration();
    if duration.subsec_nanos() == 0 {
        Ok(duration.as_secs().cast_signed())
    } else {
        let millis = duration.as_millis();
        let reason = format!(
            "a ttl in etcd is in whole seconds, 2 s at least by default, and {millis} ms is not"
        );
        Err(BackendError::Invalid(reason.into()))
    }
}

impl Connection {
    /// Makes a lease of the shortest of these times that etcd has, for this ttl. Returns `None` if it
    /// exists already.
    pub(super) async fn grant(
        &self,
        id: i64,
        seconds: RangeInclusive<i64>,
        ttl: i64,
    ) -> Result<Option<Alive>, BackendError> {
        let request = LeaseRequest { id, seconds: Some(*seconds.start()) };
        let granted = match self.call::<LeaseReply>("lease/grant", &request).await {
            Ok(reply) => reply.seconds,
            Err(Failure::LeaseExists) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        };
        if seconds.contains(&granted) {
            return Ok(Some(Alive::granted(id, granted)));
        }
        // It has no key yet.
        self.revoke(id).await?;
        let reason = format!(
            "{}: a ttl of {ttl} s is too short; the shortest of this etcd is {granted} s",
            self.server()
        );
        Err(BackendError::Invalid(reason.into()))
    }

    /// Sets the full time of a lease. Returns `None` if it has ended.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<Option<Alive>, BackendError> {
        let request = LeaseRequest { id, seconds: None };
        let reply: Streamed<LeaseReply> = self.call("lease/keepalive", &request).await?;
        let LeaseReply { header, seconds, .. } = reply.result;
        Ok((seconds > 0).then_some(Alive { id, seconds, term: Some(header.raft_term) }))
    }

    /// Ends a lease, if it exists, and deletes its key.
    pub(super) async fn revoke(&self, id: i64) -> Result<(), BackendError> {
        let request = LeaseRequest { id, seconds: None };
        match self.call::<LeaseReply>("lease/revoke", &request).await {
            Ok(_) | Err(Failure::NoLease) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Returns the seconds that a lease lives without a keep-alive, as etcd reports them: the rest of
    /// the last second is cut off. A new leader that has not yet set its end reports centuries, and it
    /// lives for no longer than the time for which it was granted.
    pub(super) async fn seconds_left(&self, id: i64) -> Result<u64, BackendError> {
        let request = LeaseRequest { id, seconds: None };
        let reply: LeaseReply = self.call("lease/timetolive", &request).await?;
        Ok(reply.seconds.min(reply.granted).try_into().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_before_an_election_does_not_count() {
        let later = Header { revision: 7, raft_term: 3 };
        let alive = |term| Alive { id: 1, seconds: 5, term };
        let outdated = alive(Some(2)).confirm(later, "etcd n1:2379").unwrap_err();
        assert!(matches!(outdated, BackendError::Unavailable(_)), "{outdated:?}");
        for term in [Some(3), None] {
            assert!(alive(term).confirm(later, "etcd n1:2379").is_ok(), "{term:?}");
        }
    }
}
