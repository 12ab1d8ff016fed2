//! The paths of a lock's nodes.

use fence::{Holder, ResourceName};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::failure::Failure;

/// What is encoded in a path. Neither a slash nor a segment of dots is left, and nothing that
/// ZooKeeper forbids.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

const PLACE: &str = "holder-";

#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// The node above those of all locks.
    root: String,
    name: String,
}

impl Paths {
    /// Returns the paths of the lock of this name, below a root.
    pub(super) fn new(root: &str, name: &ResourceName) -> Self {
        let name = utf8_percent_encode(name.as_str(), ENCODED).to_string();
        Self { root: format!("{root}/fenced"), name }
    }

    /// The nodes above those of all locks, which persist: the last two are those above the queues and
    /// above the offsets.
    pub(super) fn above_all(root: &str) -> [String; 3] {
        ["", "/queues", "/offsets"].map(|path| format!("{root}/fenced{path}"))
    }

    pub(super) fn queues(root: &str) -> String {
        let [_, queues, _] = Self::above_all(root);
        queues
    }

    /// Returns the name of the lock whose queue is this child of the queues. `None` if it is not one of
    /// ours.
    pub(super) fn parse_name(child: &str) -> Option<ResourceName> {
        percent_decode_str(child).decode_utf8().ok()?.parse().ok()
    }

    /// The container of the owner and of all waiters.
    pub(super) fn queue(&self) -> String {
        format!("{}/queues/{}", self.root, self.name)
    }

    /// The number that is added to the numbers of changes. It outlives the container.
    pub(super) fn offset(&self) -> String {
        format!("{}/offsets/{}", self.root, self.name)
    }

    /// A path for a new node of a holder in the queue. No other node ever has it. So a request that
    /// arrives late never meets a later node.
    pub(super) fn new_place(&self, holder: &Holder) -> String {
        let holder = utf8_percent_encode(holder.as_str(), ENCODED);
        format!("{}/{PLACE}{holder}+{:016x}", self.queue(), fastrand::u64(..))
    }

    /// Returns the holder of a child of the queue. `None` if the child is not one of ours.
    ///
    /// # Errors
    /// If it looks like one of ours, and can't be read: it may be the owner's.
    pub(super) fn parse(child: &str) -> Result<Option<Holder>, Failure> {
        let Some(place) = child.strip_prefix(PLACE) else { return Ok(None) };
        let (holder, _unique) = place.split_once('+').ok_or_else(Failure::foreign)?;
        let holder = percent_decode_str(holder).decode_utf8().map_err(|_| Failure::foreign())?;
        holder.parse().map(Some).map_err(|_| Failure::foreign())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(name: &str) -> Paths {
        Paths::new("", &name.parse().unwrap())
    }

    #[test]
    fn nodes_of_names_differ_and_are_valid_paths() {
        assert_eq!(paths("deploy").queue(), "/fenced/queues/deploy");
        assert_eq!(paths("a/b").offset(), "/fenced/offsets/a%2Fb");
        assert_ne!(paths("a/b").queue(), paths("a%2Fb").queue());
        assert_ne!(paths("a").queue(), paths("A").queue());
        assert_eq!(paths("...").queue(), "/fenced/queues/%2E%2E%2E");
        assert!(paths("🐢").queue().is_ascii());
        assert_eq!(Paths::new("/apps", &"a".parse().unwrap()).queue(), "/apps/fenced/queues/a");
    }

    #[test]
    fn name_is_found_in_a_queue() {
        for name in ["deploy", "a/b", "a%2Fb", "...", "🐢"] {
            let queue = paths(name).queue();
            let child = queue.strip_prefix(&format!("{}/", Paths::queues(""))).unwrap();
            assert_eq!(Paths::parse_name(child), Some(name.parse().unwrap()));
        }
        assert_eq!(Paths::parse_name("%ff"), None);
    }

    #[test]
    fn holder_is_found_in_its_places() {
        let paths = paths("a/b");
        for holder in [Holder::random(), "a+b/c.d%".parse().unwrap(), Holder::EMPTY] {
            let places = [(); 2].map(|()| paths.new_place(&holder));
            assert_ne!(places[0], places[1]);
            for place in places {
                let child = place.strip_prefix(&format!("{}/", paths.queue())).unwrap();
                assert_eq!(Paths::parse(child).unwrap(), Some(holder.clone()));
            }
        }
        assert_eq!(Paths::parse("lock-0000000001").unwrap(), None);
        for undecodable in ["holder-me", "holder-%ff+1"] {
            assert!(Paths::parse(undecodable).is_err(), "{undecodable}");
        }
    }
}
