//! HTTP connections to the members of etcd: one that is reserved for held locks, and further ones.
//!
//! A held lock must not be lost because no new connection can be made, or because tries wait for an
//! answer. So one connection is reserved once a lock is held, and is made again if it is lost. Only
//! the requests of held locks use it. While it is busy, they use further ones, of which some are
//! theirs alone. If a further one can't be made, they wait for the reserved one. A try uses a further
//! one. A watch always has a connection of its own, because it keeps it busy.

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
    sync::{Mutex, Notify, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore},
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
/// How many further connections tries have at most. Those that are not busy are left open for a
/// while.
const MOST_OF_TRIES: usize = 12;
/// The same for the requests of held locks.
const MOST_OF_HELD: usize = 4;

/// A request.
pub(super) type Message = Request<Full<Bytes>>;

/// The connections of a client.
#[derive(Clone)]
pub(super) struct Http {
    tcp: HttpConnector,
    certificates: Option<tls::Certificates>,
    reserved: Reserved,
    spare: Spare,
    /// One for each further connection of a try that is busy.
    of_tries: Arc<Semaphore>,
    of_held: Arc<Semaphore>,
    /// Notified when a connection is lost.
    pub(super) lost: Arc<Notify>,
}

/// The reserved connection. A request that uses it holds the mutex.
type Reserved = Arc<Mutex<Option<Connected>>>;

/// Further connections that are not busy.
type Spare = Arc<std::sync::Mutex<Vec<Connected>>>;

/// The connection of one request, until that is answered. It is made when it is first used.
pub(super) enum Line {
    Reserved(OwnedMutexGuard<Option<Connected>>),
    Further(Further),
}

/// By default, it is a connection of its own, which is not counted.
impl Default for Line {
    fn default() -> Self {
        Self::Further(Further::default())
    }
}

/// A further connection.
#[derive(Default)]
pub(super) struct Further {
    connected: Option<Connected>,
    /// Where it is left open, and the right to use it.
    counted: Option<(Spare, OwnedSemaphorePermit)>,
}

impl Drop for Further {
    fn drop(&mut self) {
        if let Some((spare, _)) = &self.counted {
            locked(spare).extend(self.connected.take());
        }
    }
}

/// A connection to a member.
pub(super) struct Connected {
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
        let [of_tries, of_held] =
            [MOST_OF_TRIES, MOST_OF_HELD].map(|most| Arc::new(Semaphore::new(most)));
        Self { tcp, certificates, reserved, spare, of_tries, of_held, lost }
    }

    /// Makes the reserved connection, unless it leads to this member already.
    pub(super) async fn reserve(&self, member: &Member) -> Result<(), Failure> {
        // 1. If a request uses it, it exists, unless the request has just lost it.
        let Ok(reserved) = self.reserved.try_lock() else {
            self.lost.notify_one();
            return Ok(());
        };
        if reserved.as_ref().is_some_and(|reserved| reserved.serves(member)) {
            return Ok(());
        }
        drop(reserved);
        // 2. Take one, or make one. Nobody waits for it meanwhile.
        let spare = locked(&self.spare).pop().filter(|spare| spare.serves(member));
        let connected = match spare {
            Some(spare) => spare,
            None => self.connect(member).await?,
        };
        if let Ok(mut reserved) = self.reserved.try_lock() {
            *reserved = Some(connected);
        }
        Ok(())
    }

    /// Closes the further connections that are not busy.
    pub(super) fn close_spare(&self) {
        locked(&self.spare).clear();
    }

    /// Waits for the connection of a held lock's request: the first that is free.
    pub(super) async fn line_of_held(&self) -> Line {
        match self.reserved.clone().try_lock_owned() {
            Ok(reserved) if reserved.is_some() => Line::Reserved(reserved),
            // No lock is held yet.
            Ok(_) => self.further(&self.of_held).await,
            Err(_) => tokio::select! {
                reserved = self.reserved.clone().lock_owned() => Line::Reserved(reserved),
                further = self.further(&self.of_held) => further,
            },
        }
    }

    /// Waits for the connection of a try.
    pub(super) async fn line_of_try(&self) -> Line {
        self.further(&self.of_tries).await
    }

    async fn further(&self, permits: &Arc<Semaphore>) -> Line {
        let permit = permits.clone().acquire_owned().await.expect("it is never closed");
        let connected = locked(&self.spare).pop();
        Line::Further(Further { connected, counted: Some((self.spare.clone(), permit)) })
    }

    /// Sends a request, and reads the whole answer. It may take this long, though its caller has
    /// given up, until its connection is given up.
    pub(super) async fn exchange(
        &self,
        line: &mut Line,
        member: &Member,
        message: Message,
        is_held: bool,
        longest: Duration,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let message = on_a_connection(message);
        let mut reserved = match mem::take(line) {
            Line::Reserved(reserved) => reserved,
            Line::Further(mut further) => {
                let over = &mut further.connected;
                let answer = self.exchange_over(over, member, message.clone()).await;
                if !(is_held && matches!(answer, Err(Failure::NotSent(_)))) {
                    *line = Line::Further(further);
                    return answer;
                }
                self.reserved.clone().lock_owned().await
            }
        };
        // In a task, because a caller that gives up must not close the reserved connection.
        let (http, asked) = (self.clone(), member.clone());
        let exchange = async move {
            let exchange = http.exchange_over(&mut reserved, &asked, message);
            let answer = timeout(longest, exchange).await;
            (reserved, answer)
        };
        let silent = || Failure::unavailable(member, "no answer");
        let (reserved, answer) = tokio::spawn(exchange).await.map_err(|_| silent())?;
        *line = Line::Reserved(reserved);
        answer.map_err(|_| silent())?
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

fn locked(spare: &Spare) -> MutexGuard<'_, Vec<Connected>> {
    spare.lock().expect("nothing panics while it holds this")
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
