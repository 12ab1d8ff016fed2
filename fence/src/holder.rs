//! The identity of one grant's owner.

use std::{error::Error, fmt, str::FromStr};

/// The identity of one grant's owner: up to 128 bytes of visible ASCII.
///
/// A lock client creates a random one for every acquire. It binds a token to its owner, and knowing
/// it proves ownership, so its `Debug` form is [redacted](Holder::redacted). Clients without a
/// holder use the empty one, which equals only itself.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(try_from = "String", into = "String")
)]
pub struct Holder(String);

impl Holder {
    /// The length of the longest holder, in bytes.
    pub const MAX_BYTES: usize = 128;
    /// The holder for clients that have none.
    pub const EMPTY: Self = Self(String::new());

    /// Creates an unguessable holder: 128 random bits, in hexadecimal.
    ///
    /// # Panics
    /// If the operating system returns no random numbers.
    pub fn random() -> Self {
        Self(random_id())
    }

    /// The holder as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the empty holder.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The holder as others may see it: its first 8 characters and `...`.
    ///
    /// A holder of fewer than 16 characters becomes `...`, so that most of it stays secret.
    pub fn redacted(&self) -> String {
        match self.0.len() {
            0 => String::new(),
            1..16 => "...".to_owned(),
            _ => format!("{}...", &self.0[..8]),
        }
    }
}

/// Creates an unguessable id: 128 random bits, in hexadecimal.
pub(crate) fn random_id() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system returns random numbers");
    format!("{:032x}", u128::from_be_bytes(bits))
}

impl TryFrom<String> for Holder {
    type Error = InvalidHolder;

    fn try_from(holder: String) -> Result<Self, InvalidHolder> {
        let visible = holder.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && holder.len() <= Self::MAX_BYTES {
            Ok(Self(holder))
        } else {
            Err(InvalidHolder)
        }
    }
}

impl FromStr for Holder {
    type Err = InvalidHolder;

    fn from_str(holder: &str) -> Result<Self, InvalidHolder> {
        holder.to_owned().try_into()
    }
}

impl From<Holder> for String {
    fn from(holder: Holder) -> Self {
        holder.0
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holder({:?})", self.redacted())
    }
}

/// The text is not a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHolder;

impl fmt::Display for InvalidHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a holder is up to {} characters of visible ASCII", Holder::MAX_BYTES)
    }
}

impl Error for InvalidHolder {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_ascii_up_to_the_limit_is_a_holder() {
        let longest = "~".repeat(128);
        for text in ["", "me", "9f!~", longest.as_str()] {
            assert_eq!(text.parse::<Holder>().unwrap().as_str(), text);
        }
        for text in ["a b", "a\n", "ż", "\u{7f}", &"x".repeat(129)] {
            assert_eq!(text.parse::<Holder>(), Err(InvalidHolder), "{text:?}");
        }
    }

    #[test]
    fn random_holders_have_128_bits_and_differ() {
        let (a, b) = (Holder::random(), Holder::random());
        assert_eq!(a.as_str().len(), 32);
        assert_ne!(a, b);
    }

    #[test]
    fn redaction_keeps_most_of_a_holder_unknown() {
        let redacted = |text: &str| text.parse::<Holder>().unwrap().redacted();
        assert_eq!(redacted(""), "");
        assert_eq!(redacted("a"), "...");
        assert_eq!(redacted("123456789012345"), "...");
        assert_eq!(redacted("1234567890123456"), "12345678...");
        let holder = Holder::random();
        assert!(!format!("{holder:?}").contains(holder.as_str()));
    }
}
