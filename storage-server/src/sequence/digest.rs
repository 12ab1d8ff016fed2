//! What a request or a fence is recognized by.

use std::{fmt, str::FromStr};

use fence::Fence;
use sha2::{Digest as _, Sha256};

use super::InvalidAnswers;
use crate::operation::{Action, Condition, Versions};

/// The first 128 bits of a SHA-256. Only a client could make requests of its own collide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest(u128);

impl Digest {
    /// Hashes each part with its length: parts that are divided in another way have another hash.
    fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let first = hash.first_chunk().expect("it has 32 bytes");
        Self(u128::from_be_bytes(*first))
    }

    /// Databases keep this hash. If it changed, no repeated request would be recognized.
    pub(super) fn of_request(action: &Action) -> Self {
        let method = action.name().as_bytes();
        match action {
            Action::Claim | Action::Read => Self::of_parts(&[method]),
            Action::Write { content, condition } => {
                let content_type = content.content_type.as_bytes();
                let condition = condition_text(condition);
                Self::of_parts(&[method, condition.as_bytes(), content_type, &content.bytes])
            }
            Action::Delete { condition } => {
                Self::of_parts(&[method, condition_text(condition).as_bytes()])
            }
        }
    }

    pub(super) fn of_fence(fence: &Fence) -> Self {
        Self::of_parts(&[&fence.token.as_u64().to_be_bytes(), fence.holder.as_str().as_bytes()])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Digest {
    type Err = InvalidAnswers;

    fn from_str(text: &str) -> Result<Self, InvalidAnswers> {
        u128::from_str_radix(text, 16).map(Self).map_err(|_| InvalidAnswers)
    }
}

fn condition_text(Condition { if_match, if_none_match }: &Condition) -> String {
    let versions = |versions: &Option<Versions>| match versions {
        None => "-".to_owned(),
        Some(Versions::Any) => "*".to_owned(),
        Some(Versions::Listed(versions)) => format!("{versions:?}"),
    };
    format!("{} {}", versions(if_match), versions(if_none_match))
}
