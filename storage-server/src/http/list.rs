//! `/v1/resources`: the list of resources that have a value.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Query, rejection::QueryRejection},
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use fence::{ResourceName, Token};
use serde::{Deserialize, Serialize};

use super::{problem::Problem, service::Service, session::Session};
use crate::{
    access::identity::Permission,
    committer::job::UnavailableOutcome,
    cut_offs::CutOff,
    store::list::{Listed, Listing, Page},
};

pub(super) const DEFAULT_LIMIT: u32 = 100;
pub(super) const MAX_LIMIT: u32 = 1000;

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/resources", get(list))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    after: String,
    limit: Option<u32>,
}

#[derive(Serialize)]
struct List {
    resources: Vec<ListedResource>,
    /// The parameter `after` of the next page; `None` on the last page.
    next: Option<ResourceName>,
}

#[derive(Serialize)]
struct ListedResource {
    resource: ResourceName,
    token: Option<Token>,
    version: u64,
    size: u64,
}

async fn list(
    session: Session,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(ListQuery { prefix, after, limit }) =
        query.map_err(|rejection| Problem::malformed_request(rejection.body_text()))?;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::malformed_request(format!("the limit must be from 1 to {MAX_LIMIT}")));
    }
    if prefix.chars().chain(after.chars()).any(char::is_control) {
        return Err(Problem::malformed_request("prefix and after may not have control characters"));
    }
    session.permit(&session.caller, Permission::List, &prefix)?;
    let Some(_turn) = session.turns.take_for_list(&session.client).await else {
        session.cut_offs.count(CutOff::NoTurn);
        return Err(Problem::nothing_done("other lists were made for too long".to_owned()));
    };
    // One resource more than requested shows whether there is a next page.
    let listed = session.store.list(&Page { prefix, after, limit: limit + 1, until: None }).await;
    let listing = listed.map_err(|error| session.unreachable(&error))?;
    let Listing { resources: mut listed, unfinished_after } = listing;
    let more = listed.len() > limit as usize;
    listed.truncate(limit as usize);
    let last = listed.last().filter(|_| more).map(|last| last.resource.clone());
    let next = last.or(unfinished_after);
    let resources = listed
        .into_iter()
        .map(|Listed { resource, token, version, size }| ListedResource {
            resource,
            token,
            version,
            size,
        })
        .collect();
    let list = serde_json::to_vec(&List { resources, next }).expect("a list is JSON");
    let list = session.answer_with_memory(list.into(), UnavailableOutcome::None)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], list).into_response())
}
