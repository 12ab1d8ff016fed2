//! The replies of the scripts that grant, and of those that compare the ownership.

use std::time::Duration;

use fence::Token;
use redis::{FromRedisValue, ParsingError, Value, from_redis_value};

use super::machines::votes::{Owned, OwnerReply};
use crate::redis::remaining_time;

/// The reply of `grant.lua`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GrantReply {
    /// The holder has the node, with this grant.
    Granted(Token),
    /// Another holder has the node.
    Rejected { remaining: Option<Duration>, holder: String },
}

impl FromRedisValue for GrantReply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        if let Value::Int(grant) = value {
            return token(grant).map(Self::Granted);
        }
        let (remaining, holder) = from_redis_value(value)?;
        Ok(Self::Rejected { remaining: remaining_time(remaining), holder })
    }
}

impl FromRedisValue for OwnerReply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let numbers: Vec<i64> = from_redis_value(value)?;
        match numbers[..] {
            [0] => Ok(Self::NotOurs),
            [0, grant, _] => Ok(Self::Other { grant: token(grant)? }),
            [answer, _, floor] => {
                Ok(Self::Owned(Owned { number: token(answer)?, floor: counter(floor)? }))
            }
            _ => Err(invalid("a reply has not the parts of an ownership")),
        }
    }
}

fn token(number: i64) -> Result<Token, ParsingError> {
    Token::try_from(number).map_err(|_| invalid("a reply is not a token"))
}

fn counter(number: i64) -> Result<Option<Token>, ParsingError> {
    if number == 0 { Ok(None) } else { token(number).map(Some) }
}

fn invalid(reason: &'static str) -> ParsingError {
    ParsingError::from(reason)
}
