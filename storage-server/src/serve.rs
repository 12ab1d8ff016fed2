//! Serving a store over HTTP, from the first connection to the last answer.

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    net::TcpListener,
    task::JoinError,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    audit::file::AuditLog,
    committer::Committer,
    config::Config,
    connections::{self, Entrance},
    http::{self, Routers},
    memory_budget::MemoryBudget,
    metrics::{Metrics, gauge_value},
    store::Store,
};

/// After the signal to stop, how long clients may take to finish a request that they have begun.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// After that, how long the queued operations may take to be decided. Together with the other limits
/// here, the server ends within 30 seconds.
const DECIDE_TIMEOUT: Duration = Duration::from_secs(12);

/// How long closing the store may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long sending the last answers may take.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);

/// How many connections the address of the metrics may have.
const MAX_METRICS_CONNECTIONS: usize = 16;

/// Why the server stopped serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The committer panicked, so that no operation can be decided any more.
    #[error("the committer panicked")]
    Committer(#[source] JoinError),
}

/// Serves the store over HTTP until `shutdown` completes. Then it accepts no new connection,
/// answers every queued operation, closes the store and returns.
///
/// # Errors
/// [`ServeError`] if the committer panics.
pub async fn serve(
    listener: TcpListener,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let lost_lines = config.audit_log.as_ref().map(AuditLog::lost_lines).unwrap_or_default();
    let metrics = Arc::new(Metrics::new(lost_lines));
    let (queue, mut committer) =
        Committer::start(store.clone(), config.enforcement, metrics.commits.clone());
    let budget = Arc::new(MemoryBudget::new(&config));
    let cut_offs = Arc::new(metrics.cut_offs());
    let max_connections = connections::allowed(config.max_connections);
    if max_connections < config.max_connections as usize {
        tracing::warn!(max_connections, "the limit on open files allows no more connections");
    }
    let tls = config.tls.clone();
    metrics.max_connections.set(gauge_value(max_connections));
    let draining = CancellationToken::new();
    let metrics_listener = config.metrics_listener.clone();
    let open_connections = metrics.connections.clone();
    let Routers { main, metrics, audit_end } = http::routers(
        queue,
        store.clone(),
        config.clone(),
        budget.clone(),
        cut_offs.clone(),
        metrics,
        draining.clone(),
    );
    // Clients that keep this address busy must not be in the way of those of the other one.
    let metrics_tls = config.metrics_tls.clone();
    let serving_metrics = metrics_listener.map(|listener| {
        AbortOnDropHandle::new(tokio::spawn(connections::serve(
            Entrance { listener, tls: metrics_tls },
            metrics,
            MAX_METRICS_CONNECTIONS,
            Gauge::default(),
            Arc::new(MemoryBudget::new(&config)),
            Arc::new(Metrics::default().cut_offs()),
            draining.clone(),
        )))
    });
    let drain_timeout = async {
        shutdown.await;
        draining.cancel();
        tracing::info!("draining");
        sleep(DRAIN_TIMEOUT).await;
    };
    let mut served = Box::pin(connections::serve(
        Entrance { listener: Arc::new(listener), tls },
        main,
        max_connections,
        open_connections,
        budget,
        cut_offs,
        draining.clone(),
    ));
    let ended = tokio::select! {
        () = &mut served => drain(committer).await,
        error = committer.failed() => Err(ServeError::Committer(error)),
        () = drain_timeout => {
            tracing::warn!("closing connections whose clients did not finish their requests");
            let drained = drain(committer).await;
            // The queued operations are answered now, and the answers still have to be sent.
            let _ = timeout(LAST_ANSWERS_TIMEOUT, &mut served).await;
            drained
        }
    };
    // Requests that end here have a line in the audit log, too.
    drop((served, serving_metrics));
    if timeout(CLOSE_TIMEOUT, store.close()).await.is_err() {
        tracing::warn!(database = store.database(), "the database was not closed in time");
    }
    audit_end.wait().await;
    ended
}

/// Waits until all queued operations are answered. If the database does not answer, they are
/// answered with an unknown outcome.
async fn drain(committer: Committer) -> Result<(), ServeError> {
    match timeout(DECIDE_TIMEOUT, committer.drain()).await {
        Ok(drained) => drained.map_err(ServeError::Committer),
        Err(_) => {
            tracing::warn!("queued operations were not decided in time");
            Ok(())
        }
    }
}
