//! The HTTP interface. Each of its resources is one file, with its routes, types and handlers.

mod body;
mod fences;
mod health;
mod list;
mod problem;
mod request;
mod resources;
mod service;

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderValue, Method, Uri, header},
};
use tower_http::set_header::SetResponseHeaderLayer;

use self::{problem::Problem, service::Service};
use crate::{
    committer::queue::Queue, config::Config, prober::Prober, refusals::Refusals, room::Room,
    store::Store,
};

/// Makes the router of the whole interface.
pub(crate) fn router(
    queue: Queue,
    store: Arc<dyn Store>,
    config: Config,
    room: Arc<Room>,
    refusals: Arc<Refusals>,
) -> Router {
    Router::new()
        .merge(resources::routes())
        .merge(list::routes())
        .merge(fences::routes())
        .merge(health::routes())
        .merge(problem::pages::routes())
        .fallback(no_such_page)
        .method_not_allowed_fallback(no_such_method)
        .layer(SetResponseHeaderLayer::overriding(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        ))
        // A browser must not guess that a value is a page.
        .layer(SetResponseHeaderLayer::overriding(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ))
        .with_state(Arc::new(Service {
            queue,
            prober: Prober::start(store.clone()),
            store,
            config,
            room,
            refusals,
        }))
}

async fn no_such_page(uri: Uri) -> Problem {
    Problem::no_such_page(uri.path())
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(&method, uri.path())
}
