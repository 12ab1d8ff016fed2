//! Bearer tokens, of which the server knows only hashes.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A secret that proves an identity: 256 random bits, as hexadecimal digits.
pub(crate) struct BearerToken(String);

impl BearerToken {
    /// Makes a new token.
    ///
    /// # Errors
    /// If the operating system has no random numbers.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits)?;
        Ok(Self(hex::encode(bits)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The SHA-256 of a bearer token. It needs no salt and no slow hash: these protect passwords that can
/// be guessed, and nobody can guess 256 random bits.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(crate) fn from_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

/// Takes the same time wherever the hashes differ.
impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

impl TryFrom<String> for TokenHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut hash = [0; 32];
        hex::decode_to_slice(text, &mut hash)
            .map_err(|_| "token-sha256 must have 64 hexadecimal digits")?;
        Ok(Self(hash))
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hex::encode(hash.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_the_sha256_of_the_text() {
        // printf %s fenced | sha256sum
        let hash = "d0ba5c8411f1fc8caf4edd4d7b81bcf49790669d4ded2de9e45eb82e61a429ce".to_owned();
        assert!(TokenHash::from_token(b"fenced") == TokenHash::try_from(hash).unwrap());
        assert!(TokenHash::from_token(b"fenced") != TokenHash::from_token(b"Fenced"));
        for wrong in ["", "12", &"g".repeat(64), &"0".repeat(65)] {
            assert!(TokenHash::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn tokens_are_random() {
        let [one, two] = [(); 2].map(|()| BearerToken::random().unwrap());
        assert_eq!((one.as_str().len(), two.as_str().len()), (64, 64));
        assert_ne!(one.as_str(), two.as_str());
    }
}
