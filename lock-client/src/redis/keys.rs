//! The keys of a lock, which share a hash slot, and its channels.

use fence::{Holder, ResourceName};

/// Where everything about one lock is kept.
pub(crate) struct Keys {
    tagged: String,
}

impl Keys {
    pub(crate) fn of(name: &ResourceName) -> Self {
        // Without what would end the hash tag.
        let name = name.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        Self { tagged: format!("fenced:{{{name}}}") }
    }

    pub(crate) fn lock(&self) -> String {
        format!("{}:lock", self.tagged)
    }

    pub(crate) fn counter(&self) -> String {
        format!("{}:token", self.tagged)
    }

    pub(crate) fn queue(&self) -> String {
        format!("{}:queue", self.tagged)
    }

    pub(crate) fn alive(&self) -> String {
        format!("{}:queue:alive", self.tagged)
    }

    /// The channel of those who wait in no order.
    pub(crate) fn freed(&self) -> String {
        format!("{}:freed", self.tagged)
    }

    /// The channel of one who stands in the queue.
    pub(crate) fn freed_for(&self, holder: &Holder) -> String {
        format!("{}:freed:{}", self.tagged, holder.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_name_share_a_hash_tag_and_differ() {
        let keys = |name: &str| Keys::of(&name.parse().unwrap());
        assert_eq!(keys("invoice-7").lock(), "fenced:{invoice-7}:lock");
        assert_eq!(keys("a}{b").lock(), "fenced:{a%7D%7Bb}:lock");
        assert_eq!(keys("a%7Db").lock(), "fenced:{a%257Db}:lock");
        assert_eq!(keys("a/b").counter(), "fenced:{a/b}:token");
    }
}
