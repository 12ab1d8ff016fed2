//! The name of a resource, or of the lock that guards it.

use std::{error::Error, fmt, str::FromStr};

/// The name of a resource: 1 to 512 bytes of UTF-8, without control characters.
///
/// Slashes separate segments. No segment may be empty, `.` or `..`, because clients and proxies
/// rewrite paths with such segments, and the request would reach another resource. Names are
/// ordered by their bytes, as in the databases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(try_from = "String", into = "String")
)]
pub struct ResourceName(String);

impl ResourceName {
    /// The length of the longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ResourceName {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<Self, InvalidName> {
        if name.is_empty() {
            return Err(InvalidName::Empty);
        }
        if name.len() > Self::MAX_BYTES {
            return Err(InvalidName::TooLong);
        }
        if name.chars().any(char::is_control) {
            return Err(InvalidName::ControlCharacter);
        }
        if name.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(InvalidName::Segment);
        }
        Ok(Self(name))
    }
}

impl TryFrom<Vec<u8>> for ResourceName {
    type Error = InvalidName;

    fn try_from(name: Vec<u8>) -> Result<Self, InvalidName> {
        String::from_utf8(name).map_err(|_| InvalidName::NotUtf8)?.try_into()
    }
}

impl FromStr for ResourceName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        name.to_owned().try_into()
    }
}

impl From<ResourceName> for String {
    fn from(name: ResourceName) -> Self {
        name.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidName {
    /// It is empty.
    Empty,
    /// It is longer than [`ResourceName::MAX_BYTES`].
    TooLong,
    /// Its bytes are not UTF-8.
    NotUtf8,
    /// It has a control character.
    ControlCharacter,
    /// A segment between its slashes is empty, `.` or `..`.
    Segment,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a name has at least one character"),
            Self::TooLong => write!(f, "a name has at most {} bytes", ResourceName::MAX_BYTES),
            Self::NotUtf8 => f.write_str("a name is valid UTF-8"),
            Self::ControlCharacter => f.write_str("a name has no control characters"),
            Self::Segment => {
                f.write_str("no segment of a name, between slashes, may be empty, '.' or '..'")
            }
        }
    }
}

impl Error for InvalidName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_allowed_kind_are_kept_as_given() {
        let longest = "x".repeat(512);
        let names = [
            "a",
            "orders/42",
            "invoice-7",
            "a b",
            "{x}",
            "100%",
            "%2e",
            "...",
            ".a/b.",
            "żółw/🐢",
            longest.as_str(),
        ];
        for name in names {
            assert_eq!(name.parse::<ResourceName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn anything_else_is_rejected_with_its_reason() {
        let cases = [
            ("", InvalidName::Empty),
            ("/", InvalidName::Segment),
            ("/a", InvalidName::Segment),
            ("a/", InvalidName::Segment),
            ("a//b", InvalidName::Segment),
            (".", InvalidName::Segment),
            ("a/./b", InvalidName::Segment),
            ("../a", InvalidName::Segment),
            ("a\nb", InvalidName::ControlCharacter),
            ("a\0", InvalidName::ControlCharacter),
            ("\u{7f}", InvalidName::ControlCharacter),
            ("\u{85}", InvalidName::ControlCharacter),
        ];
        for (name, reason) in cases {
            assert_eq!(name.parse::<ResourceName>(), Err(reason), "{name:?}");
        }
        assert_eq!("x".repeat(513).parse::<ResourceName>(), Err(InvalidName::TooLong));
        assert_eq!(ResourceName::try_from(vec![0xff]), Err(InvalidName::NotUtf8));
    }
}
