//! The keys of a lock, and the ids of its leases.

use fence::{Holder, ResourceName};

/// The beginning of the keys of all locks.
const BEGINNING: &str = "fenced/";
/// The first key behind those of all locks. `0` follows `/`.
pub(super) const END: &str = "fenced0";

#[derive(Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(name: &ResourceName) -> Self {
        // Without slashes, no name is the beginning of another's keys.
        Self { prefix: format!("{BEGINNING}{}/", encoded(name.as_str())) }
    }

    /// The number that is added to create revisions.
    pub(super) fn offset(&self) -> String {
        format!("{}offset", self.prefix)
    }

    /// The beginning of the keys of the owner and of all waiters.
    pub(super) fn queue(&self) -> String {
        format!("{}queue/", self.prefix)
    }

    pub(super) fn queue_end(&self) -> String {
        // `0` follows `/`.
        format!("{}queue0", self.prefix)
    }

    pub(super) fn place(&self, holder: &Holder) -> String {
        self.queue() + holder.as_str()
    }
}

/// The beginning of the keys of all locks whose names have this prefix.
pub(super) fn prefix_of_names(prefix: &str) -> String {
    format!("{BEGINNING}{}", encoded(prefix))
}

/// Returns the name of the lock whose owner or waiter has this key.
pub(super) fn name_in_queue(key: &str) -> Option<ResourceName> {
    let (name, _holder) = name_and_holder(key)?;
    name.replace("%2F", "/").replace("%25", "%").parse().ok()
}

/// Returns the id of the holder that has this key in the queue of a lock.
pub(super) fn holder_in_queue(key: &str) -> Option<&str> {
    name_and_holder(key).map(|(_name, holder)| holder)
}

fn name_and_holder(key: &str) -> Option<(&str, &str)> {
    let (name, rest) = key.strip_prefix(BEGINNING)?.split_once('/')?;
    Some((name, rest.strip_prefix("queue/")?))
}

/// Makes the id of the lease of a session that locks share. It is even.
pub(super) fn shared_lease() -> i64 {
    own_lease() ^ 1
}

/// Makes the id of a lease for one lock, or none. It is odd.
pub(super) fn own_lease() -> i64 {
    // Ids are positive. To etcd, 0 means that it chooses.
    fastrand::i64(1..=i64::MAX) | 1
}

pub(super) fn is_shared(lease: i64) -> bool {
    lease % 2 == 0
}

/// The key that seals a session. No name is empty.
pub(super) fn seal(lease: i64) -> String {
    format!("{BEGINNING}/seal/{lease}")
}

fn encoded(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_name_are_not_among_those_of_another() {
        let keys = |name: &str| Keys::new(&name.parse().unwrap());
        let holder: Holder = "me".parse().unwrap();
        assert_eq!(keys("deploy").place(&holder), "fenced/deploy/queue/me");
        assert_eq!(keys("a/queue").offset(), "fenced/a%2Fqueue/offset");
        assert_ne!(keys("a/b").offset(), keys("a%2Fb").offset());
        let own = keys("a");
        let range = own.queue()..own.queue_end();
        assert!(range.contains(&own.place(&holder)));
        for other in ["a/queue", "a0", "A", "a/queue/x"] {
            assert!(!range.contains(&keys(other).place(&holder)), "{other}");
        }
    }

    #[test]
    fn holder_is_found_in_its_key() {
        let (keys, holder) = (Keys::new(&"a/b".parse().unwrap()), Holder::random());
        assert_eq!(holder_in_queue(&keys.place(&holder)), Some(holder.as_str()));
        assert_eq!(holder_in_queue(&keys.offset()), None);
    }

    #[test]
    fn name_is_found_in_the_keys_of_its_queue() {
        for name in ["deploy", "a/queue/b", "a%2Fb", "100%", "%252F"] {
            let name: ResourceName = name.parse().unwrap();
            let place = Keys::new(&name).place(&Holder::random());
            assert!(place.starts_with(&prefix_of_names(name.as_str())));
            assert_eq!(name_in_queue(&place).as_ref(), Some(&name));
            assert_eq!(name_in_queue(&Keys::new(&name).offset()), None);
            assert_eq!(name_in_queue(&seal(2)), None);
            assert!(*place < *END);
        }
    }
}
