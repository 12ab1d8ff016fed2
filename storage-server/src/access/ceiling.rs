//! How high a token may be.

use std::{
    error::Error,
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fence::Token;
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How high a token may be, however low the fence is. A token that is far too high would lock all
/// other clients out.
///
/// The default is a day ahead of the server's clock: `lock-client` starts a new counter at the Unix
/// time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Ceiling {
    /// The server's clock, as Unix time in milliseconds, and this much.
    AheadOfClock(Duration),
    /// This token.
    Token(Token),
    /// Tokens may have any height.
    None,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self::AheadOfClock(DAY)
    }
}

impl Ceiling {
    /// The highest token that it allows at this moment.
    pub(crate) fn highest_token(self) -> Token {
        match self {
            Self::AheadOfClock(ahead) => {
                let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let ms = clock.saturating_add(ahead).as_millis().max(1);
                u64::try_from(ms).ok().and_then(|ms| Token::new(ms).ok()).unwrap_or(Token::MAX)
            }
            Self::Token(token) => token,
            Self::None => Token::MAX,
        }
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AheadOfClock(ahead) => humantime::format_duration(*ahead).fmt(f),
            Self::Token(token) => token.fmt(f),
            Self::None => f.write_str("none"),
        }
    }
}

impl FromStr for Ceiling {
    type Err = InvalidCeiling;

    fn from_str(text: &str) -> Result<Self, InvalidCeiling> {
        if text == "none" {
            Ok(Self::None)
        } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
            text.parse().map(Self::Token).map_err(|_| InvalidCeiling)
        } else {
            humantime::parse_duration(text).map(Self::AheadOfClock).map_err(|_| InvalidCeiling)
        }
    }
}

impl TryFrom<String> for Ceiling {
    type Error = InvalidCeiling;

    fn try_from(text: String) -> Result<Self, InvalidCeiling> {
        text.parse()
    }
}

impl From<Ceiling> for String {
    fn from(ceiling: Ceiling) -> Self {
        ceiling.to_string()
    }
}

/// The text is not a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCeiling;

impl fmt::Display for InvalidCeiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a token ceiling is a duration ahead of the server's clock, such as 1d or 2h; a token; or \
             none",
        )
    }
}

impl Error for InvalidCeiling {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_tokens_and_none_are_ceilings() {
        let hours = |hours: u64| Ceiling::AheadOfClock(Duration::from_secs(hours * 60 * 60));
        let token = |number| Ceiling::Token(Token::new(number).unwrap());
        for (text, ceiling) in [
            ("1d", Ceiling::default()),
            ("2h", hours(2)),
            ("1day 2h", hours(26)),
            ("0s", hours(0)),
            ("100000000000000", token(100_000_000_000_000)),
            ("none", Ceiling::None),
        ] {
            assert_eq!(text.parse(), Ok(ceiling), "{text}");
            assert_eq!(ceiling.to_string().parse(), Ok(ceiling), "{ceiling}");
        }
        for wrong in ["", "0", "-1", "-1d", "1 token", "1000000000000000", "None"] {
            assert_eq!(wrong.parse::<Ceiling>(), Err(InvalidCeiling), "{wrong:?}");
        }
    }

    #[test]
    fn longest_duration_allows_every_token() {
        assert_eq!(Ceiling::AheadOfClock(Duration::MAX).highest_token(), Token::MAX);
        let now = Ceiling::AheadOfClock(Duration::ZERO).highest_token();
        assert!(now > Token::new(1_700_000_000_000).unwrap(), "in 2023, it was {now}");
        assert!(now < Ceiling::default().highest_token(), "the control");
    }
}
