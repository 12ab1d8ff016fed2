//! One connection: its TLS handshake, its requests, and its end.

use std::{convert::Infallible, future::pending, io, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, Version, header},
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
use rustls::pki_types::CertificateDer;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_util::{either::Either, sync::CancellationToken};

use super::{
    activity::Activity,
    answer::Answer,
    client_address::ClientAddress,
    plain_http::{PlainHttp, reject_plain_http},
};
use crate::{
    access::certificate::CertificateNames,
    cut_offs::{CutOff, CutOffs},
    tls::{Encrypted, Tls},
};

/// While the server drains, how long it still accepts connections, and how long each of them may still
/// begin its last request. A client may just be sending it, and a closed connection would lose it.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a client whose certificate is not accepted any more may wait for the answers to its requests.
const REJECTED_CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many bytes the head of a request may have, and how many hyper buffers of a connection.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How many requests of one HTTP/2 connection may be in flight.
const MAX_STREAMS: u32 = 32;
/// How many bytes of one request a client may send on an HTTP/2 connection before they are read, and how
/// many of all: bodies that wait for memory must not hold up the others.
const STREAM_WINDOW_BYTES: u32 = 16 << 10;
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;

pub(super) fn http() -> auto::Builder<TokioExecutor> {
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

/// In the extensions of an answer: the client was too slow with the body of its request. hyper then
/// closes an HTTP/1 connection. An HTTP/2 connection ends once its other requests are answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnfinishedBody;

/// In the extensions of an answer: too many bytes are in flight. An HTTP/1 connection ends with it: requests
/// that its client has already sent would probably be rejected as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverBudget;

/// Waits until no client may send another request.
pub(super) async fn last_request(draining: &CancellationToken) {
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

/// A connection, and the certificate of its client with those between it and the authority, if it has one.
type Opened = (Either<Encrypted, TcpStream>, Vec<CertificateDer<'static>>);

async fn open(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Opened> {
    let Some(tls) = tls else { return Ok((Either::Right(stream), Vec::new())) };
    let stream = reject_plain_http(stream).await?;
    let stream = tls.handshake(stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    Ok((Either::Left(stream), certificates))
}

/// Waits until the client's certificate is not accepted any more.
async fn reject_client(tls: Option<&Tls>, certificates: &[CertificateDer<'static>]) {
    match tls {
        Some(tls) => tls.reject_client(certificates).await,
        None => pending().await,
    }
}

pub(super) async fn serve_connection(
    (stream, client): (TcpStream, ClientAddress),
    activity: Arc<Activity>,
    http: auto::Builder<TokioExecutor>,
    tls: Option<Tls>,
    router: Router,
    cut_offs: Arc<CutOffs>,
    draining: CancellationToken,
) {
    // 1. Agree on TLS. Until its first request, a connection counts as idle, and is closed in time.
    let (stream, certificates) = tokio::select! {
        opened = open(stream, tls.as_ref()) => match opened {
            Ok(opened) => opened,
            Err(error) => {
                if error.get_ref().is_some_and(|it| it.is::<PlainHttp>()) {
                    cut_offs.count(CutOff::PlainHttp);
                } else if let Some(reason) = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>()) {
                    tracing::debug!(%error, "a TLS handshake failed");
                    cut_offs.count(CutOff::FailedHandshake);
                    if let rustls::Error::InvalidCertificate(_) = reason {
                        cut_offs.note_rejected_certificate(client.0, reason);
                    }
                }
                return;
            }
        },
        () = last_request(&draining) => return,
    };

    // 2. Answer requests.
    let names = certificates.first().map(CertificateNames::from_certificate);
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
            let is_over_budget = response.extensions_mut().remove::<OverBudget>().is_some();
            if (is_over_budget || is_draining.is_cancelled()) && version < Version::HTTP_2 {
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
        () = reject_client(tls.as_ref(), &certificates) => {
            connection.as_mut().graceful_shutdown();
            // The client may read its answer slowly.
            timeout(REJECTED_CLIENT_TIMEOUT, connection).await.unwrap_or(Ok(()))
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
    async fn request_that_does_not_begin_is_rejected_on_http2() {
        let (client, server) = duplex(1 << 16);
        let serving = async {
            let reject = |_: Request<Incoming>| async { Err::<Response<Body>, _>(Closed::new()) };
            http().serve_connection(TokioIo::new(server), service_fn(reject)).await
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
