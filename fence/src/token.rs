//! The fencing token.

use std::{error::Error, fmt, str::FromStr};

/// A fencing token: 1 to 999 999 999 999 999, strictly growing per lock name.
///
/// The highest token fits exactly into a structured-field integer (RFC 9651), a JSON number and a
/// number of Lua, which is a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(try_from = "u64", into = "u64")
)]
pub struct Token(u64);

impl Token {
    /// The lowest token.
    pub const MIN: Self = Self(1);
    /// The highest token.
    pub const MAX: Self = Self(999_999_999_999_999);

    /// Creates a token from a number.
    ///
    /// # Errors
    /// [`InvalidToken`] if the number is not between [`Token::MIN`] and [`Token::MAX`].
    pub fn new(number: u64) -> Result<Self, InvalidToken> {
        if (Self::MIN.0..=Self::MAX.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(InvalidToken)
        }
    }

    /// The token as a number.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The token as a number for SQL databases, which have no unsigned ones.
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).expect("the highest token is below 2^50")
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses only the canonical decimal form: digits, without sign, space or leading zero.
impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        if !canonical {
            return Err(InvalidToken);
        }
        text.parse().map_err(|_| InvalidToken).and_then(Self::new)
    }
}

impl TryFrom<u64> for Token {
    type Error = InvalidToken;

    fn try_from(number: u64) -> Result<Self, InvalidToken> {
        Self::new(number)
    }
}

impl TryFrom<i64> for Token {
    type Error = InvalidToken;

    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        u64::try_from(number).map_err(|_| InvalidToken).and_then(Self::new)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

/// The number or text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidToken;

impl fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a token is a whole number from 1 to 999999999999999, in digits without a leading zero",
        )
    }
}

impl Error for InvalidToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_decimals_in_range_are_tokens() {
        for (text, number) in [("1", 1), ("34", 34), ("999999999999999", 999_999_999_999_999)] {
            let token: Token = text.parse().unwrap();
            assert_eq!(token.as_u64(), number);
            assert_eq!(token.to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_rejected() {
        let wrong = [
            "",
            "0",
            "-1",
            "+1",
            " 1",
            "1 ",
            "01",
            "1.0",
            "1e3",
            "0x1",
            "1_000",
            "٣",
            "abc",
            "1,2",
            "1000000000000000",
            "18446744073709551616",
        ];
        for text in wrong {
            assert_eq!(text.parse::<Token>(), Err(InvalidToken), "{text:?}");
        }
    }

    #[test]
    fn json_tokens_are_checked_too() {
        assert_eq!(serde_json::from_str::<Token>("34").unwrap(), Token::new(34).unwrap());
        for wrong in ["0", "-1", "1.5", "\"34\"", "1000000000000000"] {
            assert!(serde_json::from_str::<Token>(wrong).is_err(), "{wrong}");
        }
    }
}
