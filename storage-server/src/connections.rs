//! The connections of clients: accepting them, serving them, and closing those whose clients keep
//! the server waiting.

mod activity;
mod answer;

use std::{
    cmp::Reverse,
    collections::HashMap,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::Request,
    http::{Extensions, HeaderValue, Version, header},
};
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use prometheus_client::metrics::gauge::Gauge;
use rustix::process::{Resource, getrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, Id, JoinSet},
    time::{MissedTickBehavior, interval, sleep, sleep_until},
};
use tokio_util::{either::Either, sync::CancellationToken};

use self::{
    activity::{Activity, Overdue},
    answer::Answer,
};
use crate::{
    access::certificate::CertificateNames,
    cut_offs::{CutOff, CutOffs},
    room::Room,
    tls::{Encrypted, Tls},
};

/// How long a connection may have no request in flight. This covers silence from the start, heads
/// that are half sent, and idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client may read nothing of its answer.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(20);
/// The same, while room for answers is short.
const UNREAD_TIMEOUT_WHILE_SHORT: Duration = Duration::from_secs(2);
/// How often to look for such connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often to log what was refused.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// How long to wait after the system let the server accept no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for an idle connection, if all have requests in flight.
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// While the server drains, how long it still accepts connections, and how long each of them may still
/// begin its last request. A client may just be sending it, and a closed connection would lose it.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// How many descriptors are left for files, connections to the database, and the rest.
const OTHER_DESCRIPTORS: u64 = 64;
/// The system's send buffer of a connection. Linux doubles it, and reports progress only after a third was
/// read. A client that reads less within the time-outs above counts as one that reads nothing.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// How many bytes the head of a request may have, and how many hyper buffers of a connection.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How many requests of one HTTP/2 connection may be in flight.
const MAX_STREAMS: u32 = 32;
/// How many bytes of one request a client may send on an HTTP/2 connection before they are read, and how
/// many of all: bodies that wait for room must not hold up the others.
const STREAM_WINDOW_BYTES: u32 = 16 << 10;
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;

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
    room: Arc<Room>,
    cut_offs: Arc<CutOffs>,
    draining: CancellationToken,
) {
    // Accepted connections inherit it. A failure here only makes slow readers more expensive.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER_BYTES);
    let mut connections = Connections {
        serving: JoinSet::new(),
        open: HashMap::new(),
        longest_idle: Vec::new(),
        gauge: open_connections,
        max: max_connections,
        http: http(),
        tls,
        router,
        room,
        cut_offs,
        draining: draining.clone(),
    };
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log = interval(LOG_INTERVAL);
    let mut accept_after = Instant::now();
    // A load balancer may not know yet that the server drains.
    let mut last_request = pin!(last_request(&draining));
    // A connection that waits for room.
    let mut waiting = None;
    loop {
        if let Some((stream, client)) = waiting.take_if(|_| connections.make_room()) {
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
                    connections.close_longest_idle();
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

/// The address of the client that sent a request, as an extension of the request.
#[derive(Clone, Copy, Debug)]
struct ClientAddress(IpAddr);

/// The address of the client that sent a request with these extensions.
pub(crate) fn client_address(extensions: &Extensions) -> IpAddr {
    extensions.get::<ClientAddress>().expect("each request comes on a connection").0
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

fn http() -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    // The accept loop has a time-out for heads, which covers more than hyper's.
    http.http1().header_read_timeout(None).max_buf_size(MAX_HEAD_BYTES);
    // hyper closes a connection that floods it with resets.
    http.http2()
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(MAX_HEAD_BYTES);
    http
}

/// All connections. Only the accept loop uses it.
struct Connections {
    serving: JoinSet<()>,
    open: HashMap<Id, Connection>,
    /// Idle connections, the longest idle last, with the moment since which they are. A connection
    /// that became idle after this list was made is not in it, and is idle for less long.
    longest_idle: Vec<(Instant, Id)>,
    /// How many there are, for the metrics.
    gauge: Gauge,
    max: usize,
    http: auto::Builder<TokioExecutor>,
    tls: Option<Tls>,
    router: Router,
    room: Arc<Room>,
    cut_offs: Arc<CutOffs>,
    draining: CancellationToken,
}

struct Connection {
    activity: Arc<Activity>,
    task: AbortHandle,
}

impl Connections {
    /// Whether there is room for another connection. If not, closes the longest idle one, which
    /// needs a moment to end.
    fn make_room(&mut self) -> bool {
        let has_room = self.serving.len() < self.max;
        let one_is_ending = self.open.len() < self.serving.len();
        let is_crowded = !has_room && !one_is_ending && !self.close_longest_idle();
        self.room.set_crowded(is_crowded);
        has_room
    }

    fn start(&mut self, stream: TcpStream, client: SocketAddr) {
        let activity = Activity::new(Instant::now());
        let serving = serve_connection(
            (stream, ClientAddress(client.ip().to_canonical())),
            activity.clone(),
            self.http.clone(),
            self.tls.clone(),
            self.router.clone(),
            self.cut_offs.clone(),
            self.draining.clone(),
        );
        let task = self.serving.spawn(serving);
        self.open.insert(task.id(), Connection { activity, task });
        self.gauge.inc();
    }

    fn forget(&mut self, id: Id) {
        self.open.remove(&id);
        self.gauge.dec();
    }

    fn close_overdue(&mut self) {
        let now = Instant::now();
        let unread_timeout = if self.room.is_short_of_answers() {
            UNREAD_TIMEOUT_WHILE_SHORT
        } else {
            UNREAD_TIMEOUT
        };
        self.open.retain(|_, Connection { activity, task }| {
            let overdue = activity.close_if_overdue(now, IDLE_TIMEOUT, unread_timeout);
            match overdue {
                None => return true,
                Some(Overdue::Idle) => {}
                Some(Overdue::Silent) => self.cut_offs.count(CutOff::Silent),
                Some(Overdue::Unread) => self.cut_offs.count(CutOff::UnreadAnswer),
            }
            task.abort();
            false
        });
    }

    /// Closes the connection that has been idle the longest. Returns whether there was one.
    fn close_longest_idle(&mut self) -> bool {
        if self.close_listed() {
            return true;
        }
        let idle = |(&id, connection): (&Id, &Connection)| {
            connection.activity.idle_since().map(|since| (since, id))
        };
        self.longest_idle = self.open.iter().filter_map(idle).collect();
        self.longest_idle.sort_unstable_by_key(|&(since, _)| Reverse(since));
        self.close_listed()
    }

    /// Closes the longest idle one of the listed connections that still is idle.
    fn close_listed(&mut self) -> bool {
        while let Some((since, id)) = self.longest_idle.pop() {
            let connection = self.open.get(&id);
            if connection.is_some_and(|connection| connection.activity.close_if_idle(since)) {
                let connection = self.open.remove(&id).expect("it was just there");
                connection.task.abort();
                self.cut_offs.count(CutOff::Displaced);
                return true;
            }
        }
        false
    }
}

/// In the extensions of an answer: the client was too slow with the body of its request. hyper then
/// closes an HTTP/1 connection. An HTTP/2 connection ends once its other requests are answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnfinishedBody;

/// Waits until no client may send another request.
async fn last_request(draining: &CancellationToken) {
    draining.cancelled().await;
    sleep(LAST_REQUEST_TIMEOUT).await;
}

/// The connection is being closed, so the request did not begin. On HTTP/2, hyper looks for the reason
/// in the source, and the client may send the request again.
#[derive(Debug, thiserror::Error)]
#[error("the connection is being closed")]
struct Closed(#[source] h2::Error);

impl Closed {
    fn new() -> Self {
        Self(h2::Reason::REFUSED_STREAM.into())
    }
}

/// A connection, and the names in the certificate of its client if it has one.
type Opened = (Either<Encrypted, TcpStream>, Option<CertificateNames>);

async fn open(stream: TcpStream, tls: Option<Tls>) -> io::Result<Opened> {
    let Some(tls) = tls else { return Ok((Either::Right(stream), None)) };
    let stream = tls.handshake(stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let names = certificate.map(CertificateNames::from_certificate);
    Ok((Either::Left(stream), names))
}

async fn serve_connection(
    (stream, client): (TcpStream, ClientAddress),
    activity: Arc<Activity>,
    http: auto::Builder<TokioExecutor>,
    tls: Option<Tls>,
    router: Router,
    cut_offs: Arc<CutOffs>,
    draining: CancellationToken,
) {
    // 1. Agree on TLS. Until its first request, a connection counts as idle, and is closed in time.
    let (stream, names) = tokio::select! {
        opened = open(stream, tls) => match opened {
            Ok(opened) => opened,
            Err(error) => {
                if error.get_ref().is_some_and(|error| error.is::<rustls::Error>()) {
                    tracing::debug!(%error, "a TLS handshake failed");
                    cut_offs.count(CutOff::FailedHandshake);
                }
                return;
            }
        },
        () = last_request(&draining) => return,
    };

    // 2. Answer requests.
    let router = TowerToHyperService::new(router);
    let closing = activity.closing();
    // A child has a mutex of its own, for which no other connection waits.
    let is_draining = draining.child_token();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client);
        if let Some(names) = &names {
            request.extensions_mut().insert(names.clone());
        }
        let is_draining = is_draining.clone();
        let version = request.version();
        let in_flight = activity.begin();
        let answer = in_flight.is_some().then(|| router.call(request));
        async move {
            let (Some(in_flight), Some(answer)) = (in_flight, answer) else {
                return Err(Closed::new());
            };
            let Ok(mut response): Result<_, Infallible> = answer.await;
            if response.extensions_mut().remove::<UnfinishedBody>().is_some() {
                in_flight.close_connection();
            }
            if is_draining.is_cancelled() && version < Version::HTTP_2 {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok(response.map(|body| Answer::new(body, in_flight)))
        }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let shall_end = async {
        tokio::select! {
            () = last_request(&draining) => {}
            () = closing.cancelled() => {}
        }
    };
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = shall_end => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // Any other error is the client's, or the network's.
    let error = ended.err();
    let error = error.as_ref().and_then(|error| error.downcast_ref::<hyper::Error>());
    if error.is_some_and(hyper::Error::is_parse_too_large) {
        cut_offs.count(CutOff::HeadTooLarge);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use hyper::Response;
    use tokio::io::duplex;

    use super::*;

    /// Otherwise its client would have to take the outcome for unknown.
    #[tokio::test]
    async fn request_that_does_not_begin_is_refused_on_http2() {
        let (client, server) = duplex(1 << 16);
        let serving = async {
            let refuse = |_: Request<Incoming>| async { Err::<Response<Body>, _>(Closed::new()) };
            http().serve_connection(TokioIo::new(server), service_fn(refuse)).await
        };
        let asking = async {
            let (client, connection) = h2::client::handshake(client).await.unwrap();
            tokio::spawn(connection);
            let request = Request::get("http://localhost/").body(()).unwrap();
            let mut client = client.ready().await.unwrap();
            let (answer, _) = client.send_request(request, true).unwrap();
            answer.await.unwrap_err().reason()
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            reason = asking => assert_eq!(reason, Some(h2::Reason::REFUSED_STREAM)),
        }
    }
}
