//! `/v1/transactions`: writes of several resources that take effect together or not at all.

use std::{collections::HashSet, sync::Arc};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::post,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use fence::{Holder, ResourceName, Token};
use serde::{Deserialize, Serialize};

use super::{
    body,
    problem::Problem,
    request::{Fencing, parse_content_type, require_no_encoding, single},
    service::Service,
};
use crate::{
    access::{Caller, identity::Permission},
    config::Enforcement,
    operation::{Action, Condition, Content, Operation, Outcome, Versions},
    transaction::{DecidedTransaction, ResourceCondition, Transaction},
};

/// How many conditions and writes a transaction may have.
pub(super) const MAX_ITEMS: usize = 64;
/// How much of an error of the parser is shown. It may quote a whole value.
const MAX_ERROR_CHARS: usize = 200;

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/transactions", post(commit))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedTransaction {
    #[serde(default)]
    conditions: Vec<RequestedCondition>,
    writes: Vec<RequestedWrite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedCondition {
    resource: String,
    /// The version of the value; null or 0 if there must be none. It may not be left out.
    #[serde(deserialize_with = "Option::deserialize")]
    version: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedWrite {
    resource: String,
    token: Option<u64>,
    #[serde(default)]
    holder: String,
    /// The new value; null deletes. It may not be left out, so that no value is deleted by mistake.
    #[serde(deserialize_with = "Option::deserialize")]
    value: Option<RequestedValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedValue {
    #[serde(default)]
    content_type: String,
    text: Option<String>,
    base64: Option<String>,
}

async fn commit(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    require_json(&headers)?;
    require_no_encoding(&headers)?;
    let body = body::read(body, &service).await?;
    let transaction = Arc::new(parse(body, &caller, &service)?);
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

/// Parses the body, and checks what the caller may do with each resource.
fn parse(body: Bytes, caller: &Caller, service: &Service) -> Result<Transaction, Problem> {
    let requested: RequestedTransaction = serde_json::from_slice(&body).map_err(|error| {
        let error: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
        Problem::malformed_request(format!("the body is not a transaction: {error}"))
    })?;
    let RequestedTransaction { conditions, writes } = requested;
    if writes.is_empty() {
        return Err(Problem::malformed_request("a transaction has at least one write"));
    }
    if conditions.len() + writes.len() > MAX_ITEMS {
        return Err(Problem::malformed_request(format!(
            "a transaction has at most {MAX_ITEMS} conditions and writes"
        )));
    }
    let conditions = conditions.into_iter().map(|condition| condition.parse(caller, service));
    let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
    let writes = writes.into_iter().map(|write| write.parse(caller, service));
    let writes = writes.collect::<Result<Vec<_>, _>>()?;
    require_distinct(conditions.iter().map(|condition| &condition.resource), "compared")?;
    require_distinct(writes.iter().map(|write| &write.resource), "written")?;
    Ok(Transaction { conditions, writes, body })
}

/// Rejects a resource that comes twice: no order of its two writes, or versions, would be right.
fn require_distinct<'a>(
    resources: impl Iterator<Item = &'a ResourceName>,
    how: &str,
) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    for resource in resources {
        if !seen.insert(resource) {
            return Err(Problem::malformed_request(format!("a resource is {how} twice"))
                .with("resource", resource.as_str()));
        }
    }
    Ok(())
}

impl RequestedCondition {
    fn parse(self, caller: &Caller, service: &Service) -> Result<ResourceCondition, Problem> {
        let resource = parse_name(self.resource)?;
        service.permit(caller, Permission::Read, resource.as_str())?;
        let condition = match self.version {
            None | Some(0) => {
                Condition { if_none_match: Some(Versions::Any), ..Condition::default() }
            }
            Some(version) => Condition {
                if_match: Some(Versions::Listed(vec![version])),
                ..Condition::default()
            },
        };
        Ok(ResourceCondition { resource, condition })
    }
}

impl RequestedWrite {
    fn parse(self, caller: &Caller, service: &Service) -> Result<Operation, Problem> {
        let resource = parse_name(self.resource)?;
        let of_resource = |problem: Problem| problem.with("resource", resource.as_str());
        let ceiling = service.permit(caller, Permission::Write, resource.as_str())?;
        let token = self.token.map(Token::new).transpose();
        let token = token.map_err(|error| of_resource(Problem::malformed_token(error)))?;
        let holder = Holder::try_from(self.holder);
        let holder = holder.map_err(|error| of_resource(Problem::malformed_holder(error)))?;
        if token.is_none() && service.config.enforcement == Enforcement::Enforce {
            return Err(of_resource(Problem::token_required("the member `token` of a write")));
        }
        let condition = Condition::default();
        let action = match self.value {
            Some(value) => {
                Action::Write { content: value.parse().map_err(of_resource)?, condition }
            }
            None => Action::Delete { condition },
        };
        Ok(Fencing { token, holder }.operation(&resource, ceiling, action))
    }
}

impl RequestedValue {
    fn parse(self) -> Result<Content, Problem> {
        let bytes = match (self.text, self.base64) {
            (Some(text), None) => text.into(),
            (None, Some(encoded)) => {
                BASE64_STANDARD.decode(encoded).map(Bytes::from).map_err(|error| {
                    Problem::malformed_request(format!("a value is not base64: {error}"))
                })?
            }
            _ => return Err(Problem::malformed_request("a value has either text or base64")),
        };
        Ok(Content { content_type: parse_content_type(self.content_type.as_bytes())?, bytes })
    }
}

fn parse_name(name: String) -> Result<ResourceName, Problem> {
    ResourceName::try_from(name).map_err(Problem::malformed_name)
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
