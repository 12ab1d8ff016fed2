//! The HTTP interface: one file per resource of it, each with its routes, types and handlers.

mod fences;
mod health;
mod list;
mod problem;
mod request;
mod resources;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{HeaderValue, Method, Uri, header},
};
use tower_http::set_header::SetResponseHeaderLayer;

use self::problem::Problem;
use crate::{
    Enforcement, Store,
    committer::{Queue, Unavailable, UnavailableOutcome},
    operation::{Decided, Operation, Outcome},
    row::Row,
    store::{Unreachable, Wanted, WantedValue},
};

/// What the handlers share.
#[derive(Clone)]
pub struct Service {
    /// Where operations are queued.
    pub queue: Queue,
    /// Where plain reads go.
    pub store: Arc<dyn Store>,
    /// What to do with writes that the fence refuses.
    pub enforcement: Enforcement,
    /// The size of the largest value accepted, in bytes.
    pub max_value_bytes: usize,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("enforcement", &self.enforcement).finish_non_exhaustive()
    }
}

/// Makes the router of the whole interface.
pub fn router(service: Service) -> Router {
    Router::new()
        .merge(resources::routes())
        .merge(list::routes())
        .merge(fences::routes())
        .merge(health::routes())
        .merge(problem::routes())
        .fallback(no_such_page)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(service.max_value_bytes))
        .layer(SetResponseHeaderLayer::overriding(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        ))
        .with_state(Arc::new(service))
}

async fn no_such_page(uri: Uri) -> Problem {
    Problem::no_such_page(uri.path())
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(&method, uri.path())
}

impl Service {
    /// Queues an operation and awaits its decision. What the rule refused is a problem here, and
    /// what it would have refused is logged.
    async fn decide(&self, operation: Operation) -> Result<Outcome, Problem> {
        let (resource, action) = (operation.resource.clone(), operation.action.name());
        let Decided { outcome, overruled } =
            self.queue.submit(operation).await.map_err(Problem::unavailable)?;
        if let Outcome::Refused(refusal) = outcome {
            return Err(Problem::refused(&resource, refusal));
        }
        if self.enforcement == Enforcement::Report
            && let Some(refusal) = overruled
        {
            tracing::warn!(
                %resource,
                action,
                token = %refusal.token,
                highest_token = %refusal.highest_token,
                reason = refusal.reason.slug(),
                "accepted what would be refused"
            );
        }
        Ok(outcome)
    }

    /// Loads what a resource is, without claiming.
    async fn load(
        &self,
        resource: &fence::ResourceName,
        value: WantedValue,
    ) -> Result<Row, Problem> {
        let mut rows = self.store.load(&[Wanted { resource, value }]).await?;
        Ok(rows.pop().expect("a store loads as many rows as are wanted"))
    }
}

impl From<Unreachable> for Problem {
    fn from(error: Unreachable) -> Self {
        tracing::error!("{error}");
        let reason = error.to_string();
        Self::unavailable(Unavailable { outcome: UnavailableOutcome::None, reason })
    }
}
