//! The HTTP interface of the page.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::{from_fn_with_state, map_response},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::watch, time::timeout};

use super::{
    access::{Access, from_the_page, with_the_token},
    run::{End, Play, Progress, Run},
    runs::Runs,
};
use crate::{
    page,
    sandbox::{Action, Answer, RejectedAction, Settings},
    scenario,
};

/// How often a page that watches gets a sign of life. A page that is gone is noticed by it.
const ALIVE: Duration = Duration::from_secs(15);
/// How many steps a fork repeats, at most.
const MOST_STEPS: usize = 1_000;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Deserialize)]
struct Start {
    scenario: String,
}

#[derive(Deserialize)]
struct Open {
    /// What the page chose for this start. If it is asked for twice, one sandbox starts.
    start: String,
    settings: Settings,
    /// What to do before the page does anything: the steps of a run that is forked.
    #[serde(default)]
    actions: Vec<String>,
}

#[derive(Deserialize)]
struct Act {
    action: String,
}

/// The routes. Those that start processes, or end them, need the token.
pub(super) fn router(access: Access, runs: Arc<Runs>) -> Router {
    let file = |kind: &'static str, content: String| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], content) })
    };
    let control = Router::new()
        .route("/runs", post(start))
        .route("/sandboxes", post(open))
        .route("/runs/{id}/actions", post(act))
        .route("/runs/{id}", delete(leave))
        // By this, a page learns whether its token is still the lab's.
        .route("/token", get(|| async { StatusCode::NO_CONTENT }))
        .layer(from_fn_with_state(access.clone(), with_the_token));
    Router::new()
        .route("/", file("text/html; charset=utf-8", page::served()))
        .route("/page.css", file("text/css; charset=utf-8", page::STYLE.to_owned()))
        .route("/page.mjs", file("text/javascript; charset=utf-8", page::script()))
        .route("/viewer.html", file("text/plain; charset=utf-8", page::file(None)))
        .route("/runs/{id}/events", get(events))
        .merge(control)
        .layer(map_response(with_headers))
        .layer(from_fn_with_state(access, from_the_page))
        .with_state(runs)
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, page::SERVED_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn start(State(runs): State<Arc<Runs>>, Json(start): Json<Start>) -> Response {
    let Some(scenario) = scenario::find(&start.scenario) else {
        return rejected(StatusCode::NOT_FOUND, "not-now", "there is no such scenario");
    };
    started(runs.start(scenario.name, Play::Scenario(scenario)))
}

async fn open(State(runs): State<Arc<Runs>>, Json(open): Json<Open>) -> Response {
    let steps: Result<Vec<_>, _> =
        open.actions.iter().map(|action| action.parse::<Action>()).collect();
    let steps = match steps {
        Ok(steps) if steps.len() <= MOST_STEPS => steps,
        Ok(_) => return rejected(StatusCode::BAD_REQUEST, "not-now", "too many actions"),
        Err(reason) => return rejected(StatusCode::BAD_REQUEST, "not-now", &reason),
    };
    let play = Play::Sandbox(open.settings, steps);
    started(runs.start(&format!("sandbox {}", open.start), play))
}

fn started(run: Option<Arc<Run>>) -> Response {
    match run {
        Some(run) => Json(json!({"id": run.id})).into_response(),
        None => rejected(StatusCode::TOO_MANY_REQUESTS, "too-many-runs", "too many runs at once"),
    }
}

/// A rejection: the key of the page's text, which is in the reader's language, and the reason in English.
fn rejected(status: StatusCode, key: &str, detail: &str) -> Response {
    (status, Json(json!({"rejected": key, "detail": detail}))).into_response()
}

/// Carries out an action in a sandbox. It is answered when its events are recorded.
async fn act(
    State(runs): State<Arc<Runs>>,
    Path(id): Path<String>,
    Json(act): Json<Act>,
) -> Response {
    let Some(run) = runs.find(&id) else {
        return rejected(StatusCode::NOT_FOUND, "gone", "there is no such run any more");
    };
    match run.act(&act.action).await {
        Answer::Done => StatusCode::NO_CONTENT.into_response(),
        Answer::Rejected(RejectedAction { key, detail }) => {
            rejected(StatusCode::CONFLICT, key, &detail)
        }
    }
}

async fn leave(State(runs): State<Arc<Runs>>, Path(id): Path<String>) -> StatusCode {
    runs.find(&id).map_or(StatusCode::NOT_FOUND, |run| {
        run.leave();
        StatusCode::NO_CONTENT
    })
}

/// Server-sent events: each event of the run, from the start or from where the page was cut off, and
/// then the run's end.
async fn events(
    State(runs): State<Arc<Runs>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(run) = runs.find(&id) else {
        return rejected(StatusCode::NOT_FOUND, "gone", "there is no such run any more");
    };
    let seen = headers.get(LAST_EVENT_ID).and_then(|seen| seen.to_str().ok()?.parse().ok());
    let body = Body::from_stream(stream(run.watch(), seen.unwrap_or(0)));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// The text of what happens after this many events.
fn stream(
    progress: watch::Receiver<Progress>,
    seen: usize,
) -> impl Stream<Item = Result<String, Infallible>> {
    unfold(Some((progress, seen)), async |state| {
        let (mut progress, seen) = state?;
        loop {
            let (text, seen, is_end) = news(&progress.borrow_and_update(), seen);
            if is_end {
                return Some((Ok(text), None));
            } else if !text.is_empty() {
                return Some((Ok(text), Some((progress, seen))));
            }
            match timeout(ALIVE, progress.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) => return Some((Ok(": alive\n\n".to_owned()), Some((progress, seen)))),
            }
        }
    })
}

/// What is new after this many events: its text, how many events there are now, and whether the run has
/// ended.
fn news(progress: &Progress, seen: usize) -> (String, usize, bool) {
    let new = progress.events.iter().enumerate().skip(seen);
    let mut text: String = new
        .map(|(number, event)| format!("id: {}\ndata: {}\n\n", number + 1, json!(event)))
        .collect();
    if let (Some(last), false) = (progress.last, text.is_empty()) {
        text += &format!("event: age\ndata: {}\n\n", last.elapsed().as_millis());
    }
    let end = progress.end.as_ref().map(|end| match end {
        End::Played { holds, outcome } => json!({"holds": holds, "outcome": outcome}),
        End::Failed(error) => json!({"error": error}),
        End::Left => json!({"left": true}),
    });
    if let Some(end) = &end {
        text += &format!("event: end\ndata: {end}\n\n");
    }
    (text, progress.events.len(), end.is_some())
}
