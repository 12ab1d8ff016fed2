//! HTTP connections to the members of etcd: one that is kept, and further ones while it is busy.
//!
//! A held lock must not be lost because no new connection can be made. So one connection is kept as long as
//! there are holders, and is made again at once if it is lost. Every request uses it if it is free, or else a
//! further one. If that can't be made, a request of a held lock waits for the kept one, and a try does not.
//! A watch always has a further one, because it keeps it busy.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::Incoming,
    client::conn::http1,
    header::{HOST, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::RootCertStore;
use tokio::sync::{Mutex, Notify};
use tower_service::Service;

use super::{
    failure::Failure,
    server::{Member, Server},
};
use crate::tls;

/// How long a connection is idle before it is probed.
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
/// The time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a further connection is idle before it is closed.
const LONGEST_IDLE: Duration = Duration::from_secs(10);

/// A request.
pub(super) type Message = Request<Full<Bytes>>;

/// The connections of a client.
pub(super) struct Http {
    connector: Connector,
    further: Client<Connector, Full<Bytes>>,
    kept: Mutex<Option<Kept>>,
    /// Notified when a kept connection is lost.
    pub(super) lost: Arc<Notify>,
}

struct Kept {
    member: Member,
    requests: http1::SendRequest<Full<Bytes>>,
}

impl Kept {
    fn serves(&self, member: &Member) -> bool {
        self.member == *member && !self.requests.is_closed()
    }
}

impl Http {
    pub(super) fn new(server: &Server) -> Self {
        let connector = Connector::new(server);
        let mut further = Client::builder(TokioExecutor::new());
        further.pool_timer(TokioTimer::new()).pool_idle_timeout(LONGEST_IDLE);
        let further = further.build(connector.clone());
        Self { connector, further, kept: Mutex::default(), lost: Arc::default() }
    }

    /// Makes the connection that is kept, if there is none to this member.
    pub(super) async fn keep(&self, member: &Member) -> Result<(), Failure> {
        let mut kept = self.kept.lock().await;
        if !kept.as_ref().is_some_and(|kept| kept.serves(member)) {
            *kept = Some(self.connect(member).await?);
        }
        Ok(())
    }

    /// Sends a request, and reads the whole answer.
    pub(super) async fn exchange(
        &self,
        member: &Member,
        message: Message,
        is_held: bool,
    ) -> Result<(StatusCode, Bytes), Failure> {
        if let Ok(mut kept) = self.kept.try_lock() {
            return self.exchange_over(&mut kept, member, message).await;
        }
        match self.further.request(message.clone()).await {
            Ok(response) => whole(member, response).await,
            Err(error) if is_held && error.is_connect() => {
                let mut kept = self.kept.lock().await;
                self.exchange_over(&mut kept, member, message).await
            }
            Err(error) => Err(failure(member, &error)),
        }
    }

    /// Sends a request whose answer is a stream, over a connection of its own.
    pub(super) async fn open(
        &self,
        member: &Member,
        message: Message,
    ) -> Result<Response<Incoming>, Failure> {
        let opened = self.further.request(message).await;
        opened.map_err(|error| failure(member, &error))
    }

    async fn exchange_over(
        &self,
        kept: &mut Option<Kept>,
        member: &Member,
        mut message: Message,
    ) -> Result<(StatusCode, Bytes), Failure> {
        // 1. On a connection, a request names the host in a header.
        let (host, path) = (message.uri().authority(), message.uri().path_and_query());
        let host = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        let path = path.cloned().map(Uri::from);
        message.headers_mut().insert(HOST, host.expect("a member has an address"));
        *message.uri_mut() = path.expect("a method has a path");
        loop {
            // 2. A connection is taken from its place: it is lost if this future is dropped before
            // the whole answer was read.
            let present = kept.take().filter(|kept| kept.serves(member));
            let is_new = present.is_none();
            let mut present = match present {
                Some(present) => present,
                None => self.connect(member).await?,
            };
            // 3. A member may have closed an idle one just now. Then nothing was sent.
            let sent = match present.requests.ready().await {
                Ok(()) => present.requests.try_send_request(message.clone()).await,
                Err(error) if is_new => return Err(Failure::not_answered(member, &error)),
                Err(_) => continue,
            };
            match sent {
                Ok(response) => {
                    let answer = whole(member, response).await?;
                    *kept = Some(present);
                    return Ok(answer);
                }
                Err(error) if is_new || error.message().is_none() => {
                    return Err(Failure::not_answered(member, error.error()));
                }
                Err(_) => {}
            }
        }
    }

    async fn connect(&self, member: &Member) -> Result<Kept, Failure> {
        let connecting = self.connector.clone().call(member.method(""));
        let io = connecting.await.map_err(|error| Failure::not_connected(member, &*error))?;
        let made = http1::handshake(io).await;
        let (requests, connection) =
            made.map_err(|error| Failure::not_connected(member, &error))?;
        let lost = self.lost.clone();
        tokio::spawn(async move {
            // Requests on it report the error.
            let _ = connection.await;
            lost.notify_one();
        });
        Ok(Kept { member: member.clone(), requests })
    }
}

fn failure(member: &Member, error: &legacy::Error) -> Failure {
    match error.is_connect() {
        true => Failure::not_connected(member, error),
        false => Failure::not_answered(member, error),
    }
}

/// Reads the body of an answer.
pub(super) async fn whole(
    member: &Member,
    response: Response<Incoming>,
) -> Result<(StatusCode, Bytes), Failure> {
    let status = response.status();
    match response.into_body().collect().await {
        Ok(body) => Ok((status, body.to_bytes())),
        Err(error) => Err(Failure::unavailable(member, &error.to_string())),
    }
}

/// Makes connections. Each encrypted one has the certificates that the files hold then.
#[derive(Clone)]
struct Connector {
    tcp: HttpConnector,
    certificates: Option<tls::Certificates>,
}

impl Connector {
    fn new(server: &Server) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE_TIME));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
        Self { tcp, certificates: server.certificates.clone() }
    }
}

type Connecting = HttpsConnector<HttpConnector>;

impl Service<Uri> for Connector {
    type Response = <Connecting as Service<Uri>>::Response;
    type Error = <Connecting as Service<Uri>>::Error;
    type Future = <Connecting as Service<Uri>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, member: Uri) -> Self::Future {
        let config = match &self.certificates {
            Some(certificates) => certificates.current().config(),
            // No connection is encrypted.
            None => tls::trusting(RootCertStore::empty()).with_no_client_auth(),
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(config);
        connector.https_or_http().enable_http1().wrap_connector(self.tcp.clone()).call(member)
    }
}
