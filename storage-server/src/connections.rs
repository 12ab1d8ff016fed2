//! The connections of clients: accepting them, serving them, and closing those whose clients keep
//! the server waiting.

mod activity;
mod answer;
mod client_address;
mod open_connections;
mod plain_http;
mod serving;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::Router;
use prometheus_client::metrics::gauge::Gauge;
use rustix::process::{Resource, getrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    client_address::client_address,
    serving::{OverBudget, UnfinishedBody},
};
use self::{
    open_connections::OpenConnections,
    serving::{http, last_request},
};
use crate::{
    cut_offs::{CutOff, CutOffs},
    memory_budget::MemoryBudget,
    tls::Tls,
};

/// How often to look for connections whose clients keep the server waiting.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often to log what was rejected.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// How long to wait after the system let the server accept no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for an idle connection, if all have requests in flight.
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// How many descriptors are left for files, connections to the database, and the rest.
const OTHER_DESCRIPTORS: u64 = 64;
/// The system's send buffer of a connection. Linux doubles it, and reports progress only after a third was
/// read. A client that reads less within the time-outs counts as one that reads nothing.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// How many connections the server can have: as many as wanted, if the limit on open files allows.
pub(crate) fn allowed(wanted: u32) -> usize {
    let wanted = wanted as usize;
    let Some(descriptors) = getrlimit(Resource::Nofile).current else { return wanted };
    let descriptors = descriptors.saturating_sub(OTHER_DESCRIPTORS).max(1);
    wanted.min(usize::try_from(descriptors).unwrap_or(usize::MAX))
}

/// Where connections come from, and how they are encrypted.
pub(crate) struct Entrance {
    pub(crate) listener: Arc<TcpListener>,
    pub(crate) tls: Option<Tls>,
}

/// Accepts connections and serves the router on them, until `draining` is cancelled. Then it
/// soon accepts no more, and returns once all requests in flight are answered.
///
/// # Cancellation safety
/// If this future is dropped, all connections are closed.
pub(crate) async fn serve(
    Entrance { listener, tls }: Entrance,
    router: Router,
    max_connections: usize,
    open_connections: Gauge,
    budget: Arc<MemoryBudget>,
    cut_offs: Arc<CutOffs>,
    draining: CancellationToken,
) {
    // Accepted connections inherit it. A failure here only makes slow readers more expensive.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER_BYTES);
    let mut connections = OpenConnections {
        serving: JoinSet::new(),
        open: HashMap::new(),
        next_to_close: Vec::new(),
        gauge: open_connections,
        max: max_connections,
        http: http(),
        tls,
        router,
        budget,
        cut_offs,
        draining: draining.clone(),
    };
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log = interval(LOG_INTERVAL);
    let mut accept_after = Instant::now();
    // A load balancer may not know yet that the server drains.
    let mut last_request = pin!(last_request(&draining));
    // A connection that waits until it may be served.
    let mut waiting = None;
    loop {
        if let Some((stream, client)) = waiting.take_if(|_| connections.accept_another()) {
            connections.start(stream, client);
        }
        tokio::select! {
            () = &mut last_request => break,
            Some(ended) = connections.serving.join_next_with_id() => {
                connections.forget(ended.map_or_else(|error| error.id(), |(id, ())| id));
            }
            _ = sweep.tick() => connections.close_overdue(),
            _ = log.tick() => connections.cut_offs.log(),
            () = sleep(IDLE_PAUSE), if waiting.is_some() => {}
            accepted = accept(&listener, accept_after), if waiting.is_none() => match accepted {
                Ok(accepted) => waiting = Some(accepted),
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    connections.cut_offs.count(CutOff::NotAccepted);
                    connections.close_idle();
                    accept_after = Instant::now() + ACCEPT_PAUSE;
                }
            },
        }
    }
    drop(listener);
    if let Some((stream, client)) = waiting {
        connections.start(stream, client);
    }
    while connections.serving.join_next().await.is_some() {}
    connections.cut_offs.log();
}

async fn accept(listener: &TcpListener, after: Instant) -> io::Result<(TcpStream, SocketAddr)> {
    sleep_until(after.into()).await;
    let (stream, client) = listener.accept().await?;
    // Otherwise small answers wait for acknowledgements. A failure here only makes them slower.
    let _ = stream.set_nodelay(true);
    Ok((stream, client))
}

/// Whether the client gave its connection up. Any other error concerns the server.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}
