//! The server's life: from a listener to the last answer.

use std::{pin::pin, sync::Arc, time::Duration};

use anyhow::Context;
use axum::serve::ListenerExt;
use tokio::{
    net::TcpListener,
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{Enforcement, Store, committer::Committer, http};

/// How long clients may take to finish what they had begun to send when the server was told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the last answers may take to leave.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the store over HTTP until `shutdown` completes; then takes no new connections, answers
/// every operation that is queued, and returns.
///
/// # Errors
/// If the listener fails, or the committer panics.
pub async fn serve(
    listener: TcpListener,
    store: Arc<dyn Store>,
    enforcement: Enforcement,
    max_value_bytes: usize,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let (queue, mut committer) = Committer::start(store.clone(), enforcement);
    let router =
        http::router(http::Service { queue, store: store.clone(), enforcement, max_value_bytes });
    let listener = listener.tap_io(|connection| {
        // Without it, small answers would wait for acknowledgements; it is only slower that way.
        let _ = connection.set_nodelay(true);
    });
    let draining = Arc::new(Notify::new());
    let shutdown = {
        let draining = draining.clone();
        async move {
            shutdown.await;
            tracing::info!("draining");
            draining.notify_one();
        }
    };
    let mut served =
        pin!(axum::serve(listener, router).with_graceful_shutdown(shutdown).into_future());
    tokio::select! {
        result = &mut served => {
            result?;
            committer.drain().await.context("the committer has panicked")?;
        }
        error = committer.failed() => return Err(error).context("the committer has panicked"),
        () = async { draining.notified().await; sleep(DRAIN_TIMEOUT).await } => {
            tracing::warn!("gave up on clients that did not finish their requests");
            committer.drain().await.context("the committer has panicked")?;
            // What was queued is answered now; the answers need a moment to leave.
            let _ = timeout(FAREWELL_TIMEOUT, served).await;
        }
    }
    store.close().await;
    Ok(())
}
