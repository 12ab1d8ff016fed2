//! Your own services on the page: the locks that are held, and the storage's decisions as they happen.
//!
//! The page sees them through the lab, which knows the passwords and the storage's bearer token. It changes
//! nothing, unless an option of the lab allows it to break locks.

mod locks;
mod storage;

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use clap::Args;
use fence::{ResourceName, Token};
use serde::Deserialize;
use serde_json::{Value, json};

use self::{locks::OwnLocks, storage::OwnStorage};
use super::http::LAST_EVENT_ID;

/// Which services of your own the page shows.
#[derive(Args, Debug)]
pub(super) struct OwnArguments {
    /// Show the locks that are held in this lock service, which is named as for `lock-client --locks`
    ///
    /// Give it once for each node of Redlock.
    #[arg(long, value_name = "URL")]
    locks: Vec<String>,
    /// Show the decisions of this storage server as they happen, such as http://127.0.0.1:8034
    #[arg(long, value_name = "URL")]
    storage: Option<String>,
    /// The file of the bearer token for the storage server
    #[arg(long, value_name = "FILE", requires = "storage")]
    auth_token_file: Option<PathBuf>,
    /// Let the page break locks
    #[arg(long, requires = "locks")]
    allow_break: bool,
}

/// The services that the page shows.
#[derive(Debug)]
pub(super) struct Own {
    locks: Option<OwnLocks>,
    storage: Option<OwnStorage>,
    allows_break: bool,
}

impl OwnArguments {
    /// Makes clients of the services, which connect with their first requests.
    ///
    /// # Errors
    /// If a URL or the token can't be used.
    pub(super) fn open(self) -> anyhow::Result<Arc<Own>> {
        let Self { locks, storage, auth_token_file, allow_break: allows_break } = self;
        let locks = (!locks.is_empty()).then(|| OwnLocks::open(locks)).transpose();
        let locks = locks.context("--locks")?;
        let storage = storage.map(|url| OwnStorage::open(&url, auth_token_file.as_deref()));
        let storage = storage.transpose().context("--storage")?;
        Ok(Arc::new(Own { locks, storage, allows_break }))
    }
}

/// An error and its causes as one line.
fn with_causes(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

/// The routes, all of which need the token of the page.
pub(super) fn routes<S>(own: Arc<Own>) -> Router<S> {
    let mut routes = Router::new().route("/own", get(describe));
    if own.locks.is_some() {
        routes = routes.route("/own/locks", get(held));
    }
    if own.allows_break {
        routes = routes.route("/own/breaks", post(break_lock));
    }
    if own.storage.is_some() {
        routes = routes
            .route("/own/fences/{*name}", get(fence_of_resource))
            .route("/own/decisions", get(decisions));
    }
    routes.with_state(own)
}

/// What the page shows of the services, and may do with them.
async fn describe(State(own): State<Arc<Own>>) -> Json<Value> {
    Json(json!({
        "locks": own.locks.as_ref().map(OwnLocks::address),
        "storage": own.storage.as_ref().map(OwnStorage::address),
        "breaks": own.allows_break,
    }))
}

async fn held(State(own): State<Arc<Own>>) -> Response {
    let Some(locks) = &own.locks else { return StatusCode::NOT_FOUND.into_response() };
    Json(&*locks.read().await).into_response()
}

#[derive(Deserialize)]
struct Break {
    name: ResourceName,
    token: Token,
}

/// Breaks a lock, if it still has the token that the page has shown.
async fn break_lock(
    State(own): State<Arc<Own>>,
    Json(Break { name, token }): Json<Break>,
) -> Response {
    let Some(locks) = &own.locks else { return StatusCode::NOT_FOUND.into_response() };
    match locks.break_lock(&name, token).await {
        Ok(is_broken) => Json(json!({"broken": is_broken})).into_response(),
        Err(reason) => (StatusCode::BAD_GATEWAY, reason).into_response(),
    }
}

async fn fence_of_resource(State(own): State<Arc<Own>>, Path(name): Path<String>) -> Response {
    let Some(storage) = &own.storage else { return StatusCode::NOT_FOUND.into_response() };
    match storage.fence(&name).await {
        Ok(fence) => Json(fence).into_response(),
        Err(reason) => (StatusCode::BAD_GATEWAY, reason).into_response(),
    }
}

/// The storage's events, as it sends them. When they end, the browser connects again by itself, with the
/// id of the last one that it has seen.
async fn decisions(State(own): State<Arc<Own>>, headers: HeaderMap) -> Response {
    let Some(storage) = &own.storage else { return StatusCode::NOT_FOUND.into_response() };
    let body = Body::from_stream(storage.events(headers.get(LAST_EVENT_ID).cloned()));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
