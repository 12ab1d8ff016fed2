//! `/v1/transactions`: writes of several resources that take effect together or not at all.

pub(super) mod requested;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::post,
};
use fence::{ResourceName, Token};
use serde::Serialize;

use self::requested::parse;
use super::{
    body,
    problem::Problem,
    request::{require_no_encoding, single},
    service::Service,
};
use crate::{
    access::Caller,
    operation::{Operation, Outcome},
    transaction::{DecidedTransaction, Transaction},
};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/transactions", post(commit))
}

async fn commit(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    require_json(&headers)?;
    require_no_encoding(&headers)?;
    let (body, room) = body::read_with_room(body, &service).await?;
    let transaction = Arc::new(parse(body, room, &caller, &service)?);
    let decided = service.decide_transaction(transaction.clone()).await?;
    let answer = Answer::new(&transaction, &decided);
    match rejection(&transaction, &decided) {
        None => Ok(Json(answer).into_response()),
        Some(problem) => Err(problem
            .with_json("conditions", &answer.conditions)
            .with_json("writes", &answer.writes)),
    }
}

/// Rejects a body that is not declared as JSON. A page on the web may let a browser send such a body
/// to another origin without asking that first, and the server may know the browser by its address.
fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = single(headers, &header::CONTENT_TYPE).ok().flatten().unwrap_or_default();
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    if essence.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        Ok(())
    } else {
        Err(Problem::not_json())
    }
}

/// The first reason why the transaction was rejected. A token that its client may not send comes
/// before a refused one, and that before a condition that was not met: after a refused token,
/// another version would not help.
fn rejection(transaction: &Transaction, decided: &DecidedTransaction) -> Option<Problem> {
    let writes = || transaction.writes.iter().zip(&decided.writes);
    let too_high = writes().find_map(|(write, decided)| match decided.outcome {
        Outcome::TokenTooHigh { token, ceiling } => {
            Some(Problem::token_too_high(&write.resource, token, ceiling))
        }
        _ => None,
    });
    let refused = || {
        let mut writes = writes();
        writes.find_map(|(write, decided)| match decided.outcome {
            Outcome::Refused(refusal) => {
                Some(Problem::transaction_refused(&write.resource, refusal))
            }
            _ => None,
        })
    };
    let not_met = || {
        let mut conditions = transaction.conditions.iter().zip(&decided.conditions);
        let (condition, _) = conditions.find(|(_, checked)| !checked.is_met)?;
        Some(Problem::condition_not_met(&condition.resource))
    };
    too_high.or_else(refused).or_else(not_met)
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
            Outcome::Refused(refusal) => Self {
                decision: refusal.reason.slug(),
                highest_token: Some(refusal.highest_token),
                ..answer
            },
            Outcome::TokenTooHigh { ceiling, .. } => {
                Self { decision: "token-too-high", ceiling: Some(*ceiling), ..answer }
            }
            _ => answer,
        }
    }
}
