//! The keys of a lock, which share a hash slot, and its channels.

use std::borrow::Cow;

use fence::{Holder, ResourceName};

/// The keys of one lock and its channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    tagged: String,
}

impl Keys {
    /// The record of a node's membership in a Redlock cluster. A server that has this key never
    /// grants a lock alone.
    pub const NODE: &str = "fenced:node";
    /// A key that never exists, and is in another slot of a Cluster than [`NODE`](Self::NODE).
    pub(super) const NOTHING: &str = "fenced:nothing";
    /// A pattern that matches the counters of all locks. To Redis, braces in a pattern are plain
    /// characters.
    pub(crate) const ALL_COUNTERS: &str = "fenced:{*}:token";

    /// Makes the keys of the lock of this name.
    pub fn new(name: &ResourceName) -> Self {
        Self { tagged: ["fenced:{", &encode(name.as_str()), "}"].concat() }
    }

    /// Makes the keys of a lock that no name can have, because names have no empty segments.
    pub(crate) fn reserved(word: &str) -> Self {
        Self { tagged: ["fenced:{/", word, "}"].concat() }
    }

    /// A pattern that matches the keys of all locks whose names have this prefix.
    pub(super) fn held_pattern(prefix: &str) -> String {
        let mut pattern = "fenced:{".to_owned();
        for character in encode(prefix).chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern + "*}:lock"
    }

    /// Returns the name whose lock has this key.
    pub(super) fn name_of_lock(key: &str) -> Option<ResourceName> {
        let name = key.strip_prefix("fenced:{")?.strip_suffix("}:lock")?;
        name.replace("%7D", "}").replace("%7B", "{").replace("%25", "%").parse().ok()
    }

    /// The key of the lock itself.
    pub fn lock(&self) -> String {
        self.with(":lock")
    }

    /// The key of the counter that issues the tokens.
    pub fn counter(&self) -> String {
        self.with(":token")
    }

    /// The key of the queue.
    pub fn queue(&self) -> String {
        self.with(":queue")
    }

    /// The key of the times until which waiters must show that they are alive.
    pub fn alive(&self) -> String {
        self.with(":queue:alive")
    }

    /// The channel of unordered waiters.
    pub fn freed(&self) -> String {
        self.with(":freed")
    }

    /// The channel of a waiter in the queue.
    pub(crate) fn freed_for(&self, holder: &Holder) -> String {
        [&self.tagged, ":freed:", holder.as_str()].concat()
    }

    fn with(&self, suffix: &str) -> String {
        [&self.tagged, suffix].concat()
    }
}

/// Replaces the characters that would end the hash tag.
fn encode(name: &str) -> Cow<'_, str> {
    if name.contains(['%', '{', '}']) {
        name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_name_share_a_hash_tag_and_differ() {
        let keys = |name: &str| Keys::new(&name.parse().unwrap());
        assert_eq!(keys("invoice-7").lock(), "fenced:{invoice-7}:lock");
        assert_eq!(keys("a}{b").lock(), "fenced:{a%7D%7Bb}:lock");
        assert_eq!(keys("a%7Db").lock(), "fenced:{a%257Db}:lock");
        assert_eq!(keys("a/b").counter(), "fenced:{a/b}:token");
    }

    #[test]
    fn reserved_keys_are_those_of_no_name() {
        assert_eq!(Keys::reserved("trial").lock(), "fenced:{/trial}:lock");
        assert!("/trial".parse::<ResourceName>().is_err());
    }

    #[test]
    fn name_is_found_in_the_key_of_its_lock() {
        for name in ["invoice-7", "a}{b", "a%7Db", "%257D", "a/b"] {
            let name: ResourceName = name.parse().unwrap();
            assert_eq!(Keys::name_of_lock(&Keys::new(&name).lock()), Some(name));
        }
        assert_eq!(Keys::name_of_lock("fenced:{r}:token"), None);
        assert_eq!(Keys::held_pattern("a*{"), r"fenced:{a\*%7B*}:lock");
    }

    #[test]
    fn patterns_match_the_keys_that_they_name() {
        let matches = |pattern: &str, key: &str| {
            let (start, end) = pattern.split_once('*').unwrap();
            key.starts_with(start) && key.ends_with(end)
        };
        let keys = Keys::new(&"a}{b".parse().unwrap());
        assert!(matches(Keys::ALL_COUNTERS, &keys.counter()));
        for other in [keys.lock(), keys.queue(), keys.alive(), Keys::NODE.to_owned()] {
            assert!(!matches(Keys::ALL_COUNTERS, &other), "{other}");
        }
    }
}
