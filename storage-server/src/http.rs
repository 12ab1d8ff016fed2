//! The HTTP interface. Each of its resources is one file, with its routes, types and handlers.

mod body;
mod caller;
mod fences;
mod head;
mod health;
mod host;
mod list;
mod problem;
mod request;
mod resources;
mod service;
mod whole_body;

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderValue, Method, Uri, header},
    middleware::{from_fn, from_fn_with_state},
};
use tower_http::set_header::SetResponseHeaderLayer;

use self::{problem::Problem, service::Service};
use crate::{
    committer::queue::Queue,
    config::{Config, Hosts},
    prober::Prober,
    refusals::Refusals,
    room::Room,
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
    let hosts = config.hosts;
    let prober = Prober::start(store.clone());
    let service = Arc::new(Service { queue, prober, store, config, room, refusals });
    let for_known_clients = Router::new()
        .merge(resources::routes())
        .merge(list::routes())
        .merge(fences::routes())
        .route_layer(from_fn_with_state(service.clone(), caller::identify));
    let router = Router::new()
        .merge(for_known_clients)
        .merge(health::routes())
        .merge(problem::pages::routes())
        .fallback(no_such_page)
        .method_not_allowed_fallback(no_such_method);
    let router = match hosts {
        Hosts::Any => router,
        Hosts::Loopback => router.layer(from_fn(host::require_loopback_name)),
    };
    router
        .layer(from_fn_with_state(service.clone(), head::take_room))
        .layer(from_fn_with_state(service.clone(), whole_body::read_rest))
        .layer(SetResponseHeaderLayer::overriding(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        ))
        // A browser must not guess that a value is a page.
        .layer(SetResponseHeaderLayer::overriding(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ))
        .with_state(service)
}

async fn no_such_page(uri: Uri) -> Problem {
    Problem::no_such_page(uri.path())
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(&method, uri.path())
}
