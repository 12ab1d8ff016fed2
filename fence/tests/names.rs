//! Names and tokens for tests.

use fence::{ResourceName, Token};

pub(crate) fn name(name: &str) -> ResourceName {
    name.parse().unwrap()
}

pub(crate) fn token(token: u64) -> Token {
    Token::new(token).unwrap()
}
