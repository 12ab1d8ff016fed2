//! What went over the wire between a client and its servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What went over the wire between a client and its servers since the client's last event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// The requests with their answers, in the order of the requests.
    pub exchanges: Vec<Exchange>,
    /// Redis' scripts among them, by their SHA-1. A record has each of them once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scripts: BTreeMap<String, String>,
    /// How many more exchanges there were, which are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

/// A request, and its answer if there was one before the event. A part that is too long ends with `…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "protocol", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "a variant's sentence says what its fields are")]
pub enum Exchange {
    /// A request of HTTP. The answer is its status, its headers, an empty line and its body.
    Http { url: String, method: String, headers: Vec<String>, body: String, answer: Option<String> },
    /// A command of Redis at this socket or port. The answer is much as `redis-cli` prints it.
    Redis { server: String, command: Vec<Word>, answer: Option<String> },
    /// A statement of SQL, with its arguments. The answer is its rows and its tag, or its error.
    Sql {
        database: String,
        statement: String,
        arguments: Vec<Option<String>>,
        answer: Option<String>,
    },
}

/// A word of a command of Redis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// The word itself.
    Plain(String),
    /// A whole script, by its SHA-1.
    Script {
        /// Its key among the record's scripts.
        script: String,
    },
}

impl Wire {
    /// Whether nothing went over the wire.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty() && self.omitted == 0
    }

    /// Keeps no exchange, but their number.
    pub(super) fn omit(&mut self) {
        self.omitted += self.exchanges.len();
        self.exchanges.clear();
        self.scripts.clear();
    }
}

impl Exchange {
    /// Where the answer goes.
    pub(crate) fn answer_mut(&mut self) -> &mut Option<String> {
        match self {
            Self::Http { answer, .. } | Self::Redis { answer, .. } | Self::Sql { answer, .. } => {
                answer
            }
        }
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}
