//! The answer to a transaction, with every decision.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use fence::{ResourceName, Token};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    http::problem::Problem,
    memory_budget::with_memory,
    operation::{Operation, Outcome},
    transaction::{DecidedTransaction, Transaction},
};

/// The most bytes of a problem without its names and decisions.
const PROBLEM_BYTES: usize = 512;
/// The most bytes of a decision without its name and holder.
const ITEM_BYTES: usize = 128;
/// The most bytes of a name that a problem quotes, for each of its own: a combining character of two bytes
/// becomes `\\u{301}`.
const MAX_QUOTED_BYTES: usize = 4;

/// An upper bound of the answer's bytes, whatever is decided.
pub(super) fn max_answer_bytes(transaction: &Transaction) -> usize {
    let names = || transaction.resources().map(ResourceName::as_str);
    let holders = transaction.writes.iter().filter_map(|write| write.offered.as_ref());
    let holders = holders.map(|offered| offered.holder.as_str());
    let texts: usize = names().chain(holders).map(json_bytes).sum();
    let longest_name = names().map(str::len).max().unwrap_or_default();
    PROBLEM_BYTES + MAX_QUOTED_BYTES * longest_name + ITEM_BYTES * names().count() + texts
}

/// The answer, which keeps its memory until it was sent.
pub(super) fn answer(
    transaction: &Transaction,
    decided: &DecidedTransaction,
    memory: OwnedSemaphorePermit,
) -> Result<Response, Problem> {
    let answer = Answer::new(transaction, decided);
    match rejection(transaction, decided) {
        None => {
            let answer = serde_json::to_vec(&answer).expect("names and numbers are JSON");
            let answer = with_memory(answer.into_boxed_slice(), memory);
            Ok(([(header::CONTENT_TYPE, "application/json")], answer).into_response())
        }
        Some(problem) => Err(problem
            .with_json("conditions", &answer.conditions)
            .with_json("writes", &answer.writes)
            .with_memory(memory)),
    }
}

/// How many bytes the text of a name or holder has in JSON. Neither has control characters.
fn json_bytes(text: &str) -> usize {
    text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

/// The first reason why the transaction was rejected. A token that its client may not send comes
/// before a rejected one, and that before a condition that was not met: after a rejected token,
/// another version would not help.
fn rejection(transaction: &Transaction, decided: &DecidedTransaction) -> Option<Problem> {
    let writes = || transaction.writes.iter().zip(&decided.writes);
    let too_high = writes().find_map(|(write, decided)| match decided.outcome {
        Outcome::TokenTooHigh { token, ceiling } => {
            Some(Problem::token_too_high(&write.resource, token, ceiling))
        }
        _ => None,
    });
    let rejected = || {
        let mut writes = writes();
        writes.find_map(|(write, decided)| match decided.outcome {
            Outcome::Rejected(rejection) => {
                Some(Problem::transaction_rejected(&write.resource, rejection))
            }
            _ => None,
        })
    };
    let not_met = || {
        let mut conditions = transaction.conditions.iter().zip(&decided.conditions);
        let (condition, _) = conditions.find(|(_, checked)| !checked.is_met)?;
        Some(Problem::condition_not_met(&condition.resource))
    };
    too_high.or_else(rejected).or_else(not_met)
}

/// Every decision, in the order of the request.
#[derive(Serialize)]
struct Answer<'a> {
    conditions: Vec<CheckedCondition<'a>>,
    writes: Vec<DecidedWrite<'a>>,
}

#[derive(Serialize)]
struct CheckedCondition<'a> {
    resource: &'a ResourceName,
    version: Option<u64>,
    met: bool,
}

#[derive(Serialize)]
struct DecidedWrite<'a> {
    resource: &'a ResourceName,
    decision: &'static str,
    token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    highest_token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<Token>,
}

impl<'a> Answer<'a> {
    fn new(transaction: &'a Transaction, decided: &DecidedTransaction) -> Self {
        let has_effect = !decided.is_rejection();
        let conditions = transaction.conditions.iter().zip(&decided.conditions);
        let writes = transaction.writes.iter().zip(&decided.writes);
        Self {
            conditions: conditions
                .map(|(condition, checked)| CheckedCondition {
                    resource: &condition.resource,
                    version: checked.value_version,
                    met: checked.is_met,
                })
                .collect(),
            writes: writes
                .map(|(write, decided)| DecidedWrite::new(write, &decided.outcome, has_effect))
                .collect(),
        }
    }
}

impl<'a> DecidedWrite<'a> {
    fn new(write: &'a Operation, outcome: &Outcome, has_effect: bool) -> Self {
        let offered = write.offered.as_ref();
        let answer = Self {
            resource: &write.resource,
            decision: "accepted",
            token: offered.map(|offered| offered.token),
            holder: None,
            version: None,
            highest_token: None,
            ceiling: None,
        };
        match outcome {
            Outcome::Written { version, .. } | Outcome::Deleted { version } if has_effect => Self {
                holder: Some(offered.map_or("", |offered| offered.holder.as_str())),
                version: Some(*version),
                ..answer
            },
            Outcome::Rejected(rejection) => Self {
                decision: rejection.reason.slug(),
                highest_token: Some(rejection.highest_token),
                ..answer
            },
            Outcome::TokenTooHigh { ceiling, .. } => {
                Self { decision: "token-too-high", ceiling: Some(*ceiling), ..answer }
            }
            _ => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::to_bytes;
    use fence::{Fence, Holder, Rejection, RejectionReason};
    use futures_util::FutureExt;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{
        operation::{Action, Condition, Decided},
        transaction::{CheckedCondition, ResourceCondition},
    };

    fn transaction(name: &str, items: usize) -> Transaction {
        let resource: ResourceName = name.parse().unwrap();
        let holder = "\"".repeat(Holder::MAX_BYTES).parse().unwrap();
        let write = Operation {
            resource: resource.clone(),
            offered: Some(Fence { token: Token::MAX, holder }),
            ceiling: Token::MAX,
            numbered: None,
            action: Action::Delete { condition: Condition::default() },
        };
        let condition = ResourceCondition { resource, condition: Condition::default() };
        let (conditions, writes) = (vec![condition; items], vec![write; items]);
        Transaction { conditions, writes, _memory: None }
    }

    fn decided(outcome: &Outcome, is_met: bool, items: usize) -> DecidedTransaction {
        let condition = CheckedCondition { value_version: Some(u64::MAX), is_met };
        let write = Decided { outcome: outcome.clone(), overruled: None };
        DecidedTransaction { conditions: vec![condition; items], writes: vec![write; items] }
    }

    /// The answer, and the memory that it takes.
    fn answer_bytes(transaction: &Transaction, decided: &DecidedTransaction) -> usize {
        let memory = Arc::new(Semaphore::new(1));
        let permit = memory.clone().try_acquire_owned().unwrap();
        let answer = answer(transaction, decided, permit).into_response();
        assert_eq!(memory.available_permits(), 0, "the answer keeps its memory");
        let body = to_bytes(answer.into_body(), usize::MAX).now_or_never().unwrap().unwrap();
        let bytes = body.len();
        drop(body);
        assert_eq!(memory.available_permits(), 1, "it was sent");
        bytes
    }

    #[test]
    fn no_answer_is_larger_than_its_memory() {
        let rejected = |reason| {
            Outcome::Rejected(Rejection { reason, token: Token::MAX, highest_token: Token::MAX })
        };
        let outcomes = [
            Outcome::Deleted { version: u64::MAX },
            Outcome::TokenTooHigh { token: Token::MAX, ceiling: Token::MAX },
            rejected(RejectionReason::Stale),
            rejected(RejectionReason::HolderConflict),
        ];
        // As many as fit in the longest name: these grow the most when they are quoted.
        for character in ["x", "\"", "\\", "\u{301}", "\u{ad}", "\u{200b}", "\u{e0001}"] {
            let longest = character.repeat(ResourceName::MAX_BYTES / character.len());
            for name in [character, &longest] {
                for (outcome, is_met, items) in outcomes
                    .iter()
                    .flat_map(|outcome| [(outcome, true), (outcome, false)])
                    .flat_map(|(outcome, is_met)| [(outcome, is_met, 1), (outcome, is_met, 32)])
                {
                    let transaction = transaction(name, items);
                    let bytes = answer_bytes(&transaction, &decided(outcome, is_met, items));
                    let memory = max_answer_bytes(&transaction);
                    assert!(bytes <= memory, "{bytes} > {memory}: {character:?} {outcome:?}");
                    // The control: the bound is not a wild guess.
                    assert!(memory < 5 * bytes, "{bytes} << {memory}: {character:?} {outcome:?}");
                }
            }
        }
    }
}
