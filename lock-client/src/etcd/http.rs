//! HTTP connections to the members of etcd.
//!
//! A held lock must not be lost because no connection can be made, or because other requests wait for
//! an answer. So there is a pool for each purpose: one for tries, one for renewals, and one for
//! releases. While a lock is held, the last two keep a connection each, which is made again if it is
//! lost. While that is busy, they use further ones; if none can be made, they wait for the kept one.
//! Tries keep none. A watch always has a connection of its own, because it keeps it busy.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::{
    sync::{Mutex, Notify, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tower_service::Service;

use super::{
    failure::Failure,
    server::{Member, Server},
};
#[cfg(target_os = "linux")]
use crate::tcp::UNACKNOWLEDGED_TIMEOUT;
use crate::{
    clock::Moment,
    mutex::Locked,
    tcp::{KEEPALIVE_INTERVAL, KEEPALIVE_TIME},
    tls,
};

/// How long a further connection that is not busy is left open. Tries every few seconds use it again.
const SPARE_TIME: Duration = Duration::from_secs(5);
/// How often the task of a connection looks for those that are left open for too long.
const SPARE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) type Message = Request<Full<Bytes>>;

#[derive(Clone)]
pub(super) struct Http {
    connector: HttpsConnector<HttpConnector>,
    /// Further connections that are not busy, and since when.
    spare: Arc<Spare>,
    /// Notified when a connection is lost.
    pub(super) lost: Arc<Notify>,
}

/// The connections for one purpose.
pub(super) struct Pool {
    http: Http,
    /// The connection that is kept while a lock is held. A request that uses it holds the mutex.
    /// `None` for tries.
    kept: Option<Kept>,
    /// One caller at a time makes the kept connection.
    making: Mutex<()>,
    /// One for each further connection that is busy.
    permits: Arc<Semaphore>,
}

type Kept = Arc<Mutex<Option<Connected>>>;

/// The connection of one request, until that is answered. It is made when it is first used.
pub(super) struct Line {
    pool: Arc<Pool>,
    kept: Option<OwnedMutexGuard<Option<Connected>>>,
    further: Option<Connected>,
    /// The right to a further one. A request over it ends with this line.
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let spare = self.further.take().map(|further| (further, Moment::now()));
        self.pool.http.spare.locked().extend(spare);
        // The next request finds the connection.
        drop(self.permit.take());
    }
}

type Spare = std::sync::Mutex<Vec<(Connected, Moment)>>;

struct Connected {
    member: Member,
    requests: SendRequest<Full<Bytes>>,
}

impl Connected {
    fn serves(&self, member: &Member) -> bool {
        self.member == *member && !self.requests.is_closed()
    }
}

impl Pool {
    pub(super) fn new(http: &Http, most: usize) -> Self {
        let (http, permits) = (http.clone(), Arc::new(Semaphore::new(most)));
        Self { http, kept: None, making: Mutex::default(), permits }
    }

    /// The same, with a kept connection, which [`keep`](Self::keep) makes.
    pub(super) fn with_kept(http: &Http, most: usize) -> Self {
        Self { kept: Some(Kept::default()), ..Self::new(http, most) }
    }

    pub(super) fn http(&self) -> &Http {
        &self.http
    }

    /// Whether there is a kept connection to this member. One that a request uses counts, wherever it
    /// leads: the request has it made again.
    pub(super) fn has_kept(&self, member: &Member) -> bool {
        let kept = self.kept.as_ref().map(|kept| kept.try_lock());
        kept.is_some_and(|kept| kept.map_or(true, |kept| serves(&kept, member)))
    }

    /// Makes the kept connection, unless it leads to this member already.
    pub(super) async fn keep(&self, member: &Member) -> Result<(), Failure> {
        let Some(place) = &self.kept else { return Ok(()) };
        // 1. Others that want it at this time find it. If each made one, a hundred grants would make
        // a hundred connections.
        let _turn = self.making.lock().await;
        // 2. If a request uses it, it exists, unless the request has just lost it.
        let Ok(kept) = place.try_lock() else {
            self.http.lost.notify_one();
            return Ok(());
        };
        if serves(&kept, member) {
            return Ok(());
        }
        drop(kept);
        // 3. Take one, or make one. Nobody waits for it meanwhile.
        let spare = self.http.take_spare().filter(|spare| spare.serves(member));
        let connected = match spare {
            Some(spare) => spare,
            None => self.http.connect(member).await?,
        };
        // 4. A request may have made it meanwhile.
        if let Ok(mut kept) = place.try_lock()
            && !serves(&kept, member)
        {
            *kept = Some(connected);
        }
        Ok(())
    }

    /// Waits for a connection: the first that is free.
    pub(super) async fn line(self: &Arc<Self>) -> Line {
        let Some(kept) = &self.kept else { return self.further_line().await };
        match kept.clone().try_lock_owned() {
            Ok(kept) if kept.is_some() => self.kept_line(kept),
            // No lock is held yet.
            Ok(_) => self.further_line().await,
            Err(_) => tokio::select! {
                kept = kept.clone().lock_owned() => self.kept_line(kept),
                further = self.further_line() => further,
            },
        }
    }

    fn kept_line(self: &Arc<Self>, kept: OwnedMutexGuard<Option<Connected>>) -> Line {
        Line { pool: self.clone(), kept: Some(kept), further: None, permit: None }
    }

    async fn further_line(self: &Arc<Self>) -> Line {
        let permit = self.permits.clone().acquire_owned().await.expect("it is never closed");
        let further = self.http.take_spare();
        Line { pool: self.clone(), kept: None, further, permit: Some(permit) }
    }
}

fn serves(connected: &Option<Connected>, member: &Member) -> bool {
    connected.as_ref().is_some_and(|connected| connected.serves(member))
}

impl Line {
    /// Sends a request, and reads the whole answer. Over the kept connection, that goes on for so long
    /// though the caller gives up. Otherwise, the caller would close it.
    pub(super) async fn exchange(
        &mut self,
        member: &Member,
        message: Message,
        longest: Duration,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let Some(mut kept) = self.kept.take() else {
            return self.pool.http.exchange(&mut self.further, member, message).await;
        };
        let (pool, asked) = (self.pool.clone(), member.clone());
        let exchange = async move {
            let answer = timeout(longest, pool.http.exchange(&mut kept, &asked, message)).await;
            (kept, answer)
        };
        let silent = || Failure::unavailable(member, "no answer");
        let (kept, answer) = tokio::spawn(exchange).await.map_err(|_| silent())?;
        self.kept = Some(kept);
        answer.map_err(|_| silent())?
    }

    /// Waits for the kept connection if this line could not connect to a member. Returns whether it has
    /// it now.
    pub(super) async fn wait_for_kept(&mut self, member: &Member) -> bool {
        if self.kept.is_some() || serves(&self.further, member) {
            return false;
        }
        let Some(kept) = &self.pool.kept else { return false };
        let kept = kept.clone().lock_owned().await;
        self.kept = kept.is_some().then_some(kept);
        self.kept.is_some()
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
        let certificates = server.certificates.as_ref();
        let config = certificates.map_or_else(tls::unencrypted, tls::Certificates::live_config);
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let connector = connector.enable_http1().wrap_connector(tcp);
        let (spare, lost) = Default::default();
        Self { connector, spare, lost }
    }

    fn take_spare(&self) -> Option<Connected> {
        self.spare.locked().pop().map(|(spare, _)| spare)
    }

    /// Sends a request over a connection, which is lost if this future is dropped before the whole
    /// answer was read.
    async fn exchange(
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
        let sent = connected.requests.send_request(message).await;
        sent.map_err(|error| Failure::not_answered(member, &error))
    }

    async fn connect(&self, member: &Member) -> Result<Connected, Failure> {
        let mut connector = self.connector.clone();
        let connecting = connector.call(member.uri()).await;
        let io = connecting.map_err(|error| Failure::not_connected(member, &*error))?;
        let made = http1::handshake(io).await;
        let (requests, connection) =
            made.map_err(|error| Failure::not_connected(member, &error))?;
        let (lost, spare) = (self.lost.clone(), Arc::downgrade(&self.spare));
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            // Requests on it report the error. While any connection is open, those that are spare for too long
            // are closed, perhaps this one.
            while timeout(SPARE_CHECK_INTERVAL, &mut connection).await.is_err() {
                if let Some(spare) = spare.upgrade() {
                    spare.locked().retain(|(_, since)| since.elapsed() < SPARE_TIME);
                }
            }
            lost.notify_one();
        });
        Ok(Connected { member: member.clone(), requests })
    }
}

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

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn callers_at_one_time_make_one_kept_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("etcd://{}", listener.local_addr().unwrap());
        let server = Server::open(&url).unwrap();
        let member = &server.members[0];
        let pool = Pool::with_kept(&Http::new(&server), 1);
        for kept in join_all((0..20).map(|_| pool.keep(member))).await {
            kept.unwrap();
        }
        assert!(pool.has_kept(member));
        let _first = listener.accept().await.unwrap();
        let second = timeout(Duration::from_millis(200), listener.accept()).await;
        assert!(second.is_err(), "one is enough");
    }

    #[tokio::test]
    async fn tries_keep_no_connection() {
        let server = Server::open("etcd://127.0.0.1:1").unwrap();
        let member = &server.members[0];
        let pool = Arc::new(Pool::new(&Http::new(&server), 2));
        pool.keep(member).await.unwrap();
        assert!(!pool.has_kept(member));
        assert!(!pool.line().await.wait_for_kept(member).await);
    }
}
