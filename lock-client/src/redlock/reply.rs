//! The replies of the scripts that grant, and of those that compare the ownership.

use std::time::Duration;

use fence::Token;
use redis::{FromRedisValue, ParsingError, Value, from_redis_value};

use crate::redis::remaining_time;

/// The reply of a request to take a node: `grant.lua` and `join.lua`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GrantReply {
    /// The holder has the node.
    Granted {
        /// The node's grant.
        grant: Token,
        /// The node's counter before this ownership.
        floor: u64,
    },
    /// Another holder has the node.
    Refused { remaining: Option<Duration>, holder: String },
}

/// The reply of a script that compares the ownership: `renew.lua`, `raise.lua` and `seal.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerReply {
    /// The lock belongs to this ownership, and the script has done its work.
    Owned(Owned),
    /// The holder has the lock, but under another grant, or with too high a floor for a seal.
    Other {
        /// The grant on this node.
        grant: Token,
    },
    /// The holder does not have the lock.
    NotOurs,
}

/// What an owner is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    /// The sealed token of a renewal and a seal, the counter of a raise.
    pub(super) number: Token,
    /// The node's counter before this ownership.
    pub(super) floor: u64,
}

impl FromRedisValue for GrantReply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        if let Value::Array(parts) = &value
            && let [Value::Int(grant), Value::Int(floor)] = parts[..]
        {
            return Ok(Self::Granted { grant: token(grant)?, floor: number(floor)? });
        }
        let (remaining, holder) = from_redis_value(value)?;
        Ok(Self::Refused { remaining: remaining_time(remaining), holder })
    }
}

impl FromRedisValue for OwnerReply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let numbers: Vec<i64> = from_redis_value(value)?;
        match numbers[..] {
            [0] => Ok(Self::NotOurs),
            [0, grant, _] => Ok(Self::Other { grant: token(grant)? }),
            [answer, _, floor] => {
                Ok(Self::Owned(Owned { number: token(answer)?, floor: number(floor)? }))
            }
            _ => Err(invalid("a reply has not the parts of an ownership")),
        }
    }
}

fn token(number: i64) -> Result<Token, ParsingError> {
    Token::try_from(number).map_err(|_| invalid("a reply is not a token"))
}

fn number(number: i64) -> Result<u64, ParsingError> {
    u64::try_from(number).map_err(|_| invalid("a floor is negative"))
}

fn invalid(reason: &'static str) -> ParsingError {
    ParsingError::from(reason)
}
