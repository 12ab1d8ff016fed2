//! The HTTP interface. Each of its resources is one file, with its routes, types and handlers.

mod body;
mod body_digest;
mod caller;
mod fences;
mod head;
mod health;
mod host;
mod list;
mod metrics;
mod observe;
mod openapi;
mod problem;
mod request;
mod request_id;
mod resources;
mod service;
mod session;
mod terraform;
mod transactions;
mod turns;
mod values;
mod whole_body;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, header, request::Parts},
    middleware::{from_fn, from_fn_with_state},
};
use tokio_util::sync::CancellationToken;
use tower_http::set_header::SetResponseHeaderLayer;

use self::{problem::Problem, service::Service, turns::Turns};
use crate::{
    audit::{Audit, AuditEnd},
    committer::queue::Queue,
    config::{Config, Hosts},
    cut_offs::CutOffs,
    memory_budget::MemoryBudget,
    metrics::Metrics,
    prober::Prober,
    rate_limit::RateLimit,
    store::Store,
};

/// The routers of the server's addresses.
pub(crate) struct Routers {
    /// The whole interface.
    pub(crate) main: Router,
    /// Only `/metrics`, for every client.
    pub(crate) metrics: Router,
    /// What is left to do once both are dropped.
    pub(crate) audit_end: AuditEnd,
}

/// Makes the routers.
pub(crate) fn routers(
    queue: Queue,
    store: Arc<dyn Store>,
    config: Config,
    budget: Arc<MemoryBudget>,
    cut_offs: Arc<CutOffs>,
    metrics: Arc<Metrics>,
    draining: CancellationToken,
) -> Routers {
    let hosts = config.hosts;
    let metrics_listener = config.metrics_listener.clone();
    problem::slugs().for_each(|slug| metrics.begin_rejections(slug));
    let prober = Prober::start(store.clone());
    let rate_limit = config.requests_per_second.map(RateLimit::new);
    let (audit, audit_end) = Audit::start(config.audit_log.clone(), &config.access);
    let service = Arc::new(Service {
        turns: Turns::new(store.reads_at_once()),
        queue,
        prober,
        store,
        config,
        budget,
        rate_limit,
        cut_offs,
        metrics,
        audit,
        draining,
    });
    let mut for_known_clients = for_known_clients();
    if metrics_listener.is_none() {
        for_known_clients = for_known_clients.merge(metrics::routes_for_operators());
    }
    let main = for_known_clients
        .route_layer(from_fn_with_state(service.clone(), caller::identify))
        .merge(for_all_clients());
    let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    let metrics_hosts = match metrics_listener.map(|listener| listener.local_addr()) {
        Some(Ok(address)) if is_loopback(address) => Hosts::Loopback,
        _ => Hosts::Any,
    };
    Routers {
        main: finish(main, hosts, &service),
        metrics: finish(metrics::routes_for_all(), metrics_hosts, &service),
        audit_end,
    }
}

/// The routes whose clients must be known if the server has an auth file.
fn for_known_clients() -> Router<Arc<Service>> {
    Router::new()
        .merge(resources::routes())
        .merge(list::routes())
        .merge(fences::routes())
        .merge(transactions::routes())
        .merge(terraform::routes())
}

fn for_all_clients() -> Router<Arc<Service>> {
    Router::new().merge(health::routes()).merge(problem::pages::routes()).merge(openapi::routes())
}

/// Adds what all requests of an address have in common.
fn finish(router: Router<Arc<Service>>, hosts: Hosts, service: &Arc<Service>) -> Router {
    let router = router.fallback(no_such_page).method_not_allowed_fallback(no_such_method);
    let router = match hosts {
        Hosts::Any => router,
        Hosts::Loopback => router.layer(from_fn(host::require_loopback_name)),
    };
    router
        .layer(from_fn_with_state(service.clone(), head::take_memory))
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
        .layer(from_fn_with_state(service.clone(), observe::observe))
        .with_state(service.clone())
}

async fn no_such_page(State(service): State<Arc<Service>>, head: Parts) -> Problem {
    let excess = admit_unserved(&service, &head).err();
    excess.unwrap_or_else(|| Problem::no_such_page(head.uri.path()))
}

async fn no_such_method(State(service): State<Arc<Service>>, head: Parts) -> Problem {
    let excess = admit_unserved(&service, &head).err();
    excess.unwrap_or_else(|| Problem::method_not_allowed(&head.method, head.uri.path()))
}

/// Counts a request that no handler gets.
fn admit_unserved(service: &Service, head: &Parts) -> Result<(), Problem> {
    let caller = service.identify(&head.headers, &head.extensions);
    service.admit(caller.as_ref(), &head.extensions)
}
