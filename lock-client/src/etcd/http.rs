//! HTTP connections to the members of etcd: one that is reserved, and further ones while it is busy.
//!
//! A held lock must not be lost because no new connection can be made. So one connection is reserved
//! as long as there are holders, and is made again at once if it is lost. Every request uses it if
//! it is free, until it is answered, or else a further one. If all are busy, a try waits for a
//! further one, and a request of a held lock for the first that is free. If a further one can't be
//! made, a request of a held lock waits for the reserved one, and a try does not. A watch always has
//! a connection of its own, because it keeps it busy.

use std::{
    mem,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{HOST, HeaderValue},
};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::RootCertStore;
use tokio::{
    sync::{Mutex, Notify, OwnedMutexGuard, Semaphore},
    time::timeout,
};
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
/// How long an answer may take until its connection is given up, though its caller has long given up.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);
/// How many further connections there are at most. Those that are not busy are left open for a
/// while.
const MOST_FURTHER: usize = 16;

/// A request.
pub(super) type Message = Request<Full<Bytes>>;

/// The connections of a client.
#[derive(Clone)]
pub(super) struct Http {
    tcp: HttpConnector,
    certificates: Option<tls::Certificates>,
    reserved: Arc<Mutex<Option<Connected>>>,
    /// Further connections that are not busy.
    spare: Arc<std::sync::Mutex<Vec<Connected>>>,
    /// One for each further connection that is busy.
    further: Arc<Semaphore>,
    /// Notified when a connection is lost.
    pub(super) lost: Arc<Notify>,
}

struct Connected {
    member: Member,
    requests: SendRequest<Full<Bytes>>,
}

impl Connected {
    fn serves(&self, member: &Member) -> bool {
        self.member == *member && !self.requests.is_closed()
    }
}

impl Http {
    pub(super) fn new(server: &Server) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE_TIME));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
        let ((reserved, spare, lost), certificates) =
            (Default::default(), server.certificates.clone());
        let further = Arc::new(Semaphore::new(MOST_FURTHER));
        Self { tcp, certificates, reserved, spare, further, lost }
    }

    /// Makes the reserved connection, unless it leads to this member already.
    pub(super) async fn reserve(&self, member: &Member) -> Result<(), Failure> {
        let mut reserved = self.reserved.lock().await;
        if !reserved.as_ref().is_some_and(|reserved| reserved.serves(member)) {
            *reserved = Some(self.connect(member).await?);
        }
        Ok(())
    }

    /// Closes the further connections that are not busy.
    pub(super) fn close_spare(&self) {
        self.spare().clear();
    }

    /// Sends a request, and reads the whole answer.
    pub(super) async fn exchange(
        &self,
        member: &Member,
        message: Message,
        is_held: bool,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let message = on_a_connection(message);
        if let Ok(reserved) = self.reserved.clone().try_lock_owned() {
            return self.exchange_over_reserved(reserved, member, message).await;
        }
        let busy = tokio::select! {
            reserved = self.reserved.clone().lock_owned(), if is_held => {
                return self.exchange_over_reserved(reserved, member, message).await;
            }
            busy = self.further.acquire() => busy,
        };
        let mut spare = self.spare().pop();
        let answer = self.exchange_over(&mut spare, member, message.clone()).await;
        self.spare().extend(spare);
        drop(busy);
        match answer {
            Err(Failure::NotSent(_)) if is_held => {
                let reserved = self.reserved.clone().lock_owned().await;
                self.exchange_over_reserved(reserved, member, message).await
            }
            answer => answer,
        }
    }

    /// Sends a request over the reserved connection. In a task, because a caller that gives up must
    /// not close it.
    async fn exchange_over_reserved(
        &self,
        mut reserved: OwnedMutexGuard<Option<Connected>>,
        member: &Member,
        message: Message,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let (http, asked) = (self.clone(), member.clone());
        let exchange = async move { http.exchange_over(&mut reserved, &asked, message).await };
        let exchanged = tokio::spawn(timeout(LONGEST_ANSWER, exchange)).await;
        let silent = || Failure::unavailable(member, "no answer");
        exchanged.map_err(|_| silent())?.map_err(|_| silent())?
    }

    /// Sends a request over a connection, which is lost if this future is dropped before the whole
    /// answer was read.
    async fn exchange_over(
        &self,
        place: &mut Option<Connected>,
        member: &Member,
        message: Message,
    ) -> Result<(StatusCode, Bytes), Failure> {
        loop {
            let is_new = !place.as_ref().is_some_and(|present| present.serves(member));
            // A connection to another member ends once there is one to this member.
            let mut connected = match place.take_if(|_| !is_new) {
                Some(present) => present,
                None => self.connect(member).await?,
            };
            // The member may have closed an idle connection just now. Then nothing was sent.
            let sent = match connected.requests.ready().await {
                Ok(()) => connected.requests.try_send_request(message.clone()).await,
                Err(_) if !is_new => continue,
                Err(error) => return Err(Failure::not_answered(member, &error)),
            };
            match sent {
                Ok(response) => {
                    let answer = whole(member, response).await?;
                    *place = Some(connected);
                    return Ok(answer);
                }
                Err(error) if !is_new && error.message().is_some() => {}
                Err(error) => return Err(Failure::not_answered(member, error.error())),
            }
        }
    }

    /// Sends a request whose answer is a stream, over a connection of its own.
    pub(super) async fn open(
        &self,
        member: &Member,
        message: Message,
    ) -> Result<Response<Incoming>, Failure> {
        let mut connected = self.connect(member).await?;
        let sent = connected.requests.send_request(on_a_connection(message)).await;
        sent.map_err(|error| Failure::not_answered(member, &error))
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Connected>> {
        self.spare.lock().expect("nothing panics while it holds this")
    }

    /// Makes a connection. An encrypted one has the certificates that the files hold now.
    async fn connect(&self, member: &Member) -> Result<Connected, Failure> {
        let config = match &self.certificates {
            Some(certificates) => certificates.current().config(),
            // No connection is encrypted.
            None => tls::trusting(RootCertStore::empty()).with_no_client_auth(),
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let mut connector = connector.enable_http1().wrap_connector(self.tcp.clone());
        let connecting = connector.call(member.method("")).await;
        let io = connecting.map_err(|error| Failure::not_connected(member, &*error))?;
        let made = http1::handshake(io).await;
        let (requests, connection) =
            made.map_err(|error| Failure::not_connected(member, &error))?;
        let lost = self.lost.clone();
        tokio::spawn(async move {
            // Requests on it report the error.
            let _ = connection.await;
            lost.notify_one();
        });
        Ok(Connected { member: member.clone(), requests })
    }
}

/// On a connection, a request names its host in a header.
fn on_a_connection(mut message: Message) -> Message {
    let uri = mem::take(message.uri_mut()).into_parts();
    let host = uri.authority.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    message.headers_mut().insert(HOST, host.expect("a member has an address"));
    *message.uri_mut() = uri.path_and_query.expect("a method has a path").into();
    message
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
