//! A proxy that hides a restart of its server.

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    time::sleep,
};

use super::{
    message::{Framing, Messages, Outbox},
    resp,
    upstream::Upstream,
};

const RECONNECT_PAUSE: Duration = Duration::from_millis(10);

/// A proxy before a Redis that knows its protocol, on a free port of 127.0.0.1. When the server
/// closes a connection, the client's stays open: the proxy connects again, and sends the unanswered
/// requests once more. All connections end when the proxy is dropped.
#[derive(Debug)]
pub struct ReconnectingProxy {
    address: SocketAddr,
    _ends: watch::Sender<()>,
}

impl ReconnectingProxy {
    /// Starts a proxy before the server at this socket or port.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn start(upstream: impl Into<Upstream>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (ends, end) = watch::channel(());
        tokio::spawn(accept(listener, upstream.into(), end));
        Ok(Self { address, _ends: ends })
    }

    /// Returns the URL at which clients connect.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

async fn accept(listener: TcpListener, upstream: Upstream, mut end: watch::Receiver<()>) {
    loop {
        select! {
            _ = end.changed() => return,
            Ok((client, _)) = listener.accept() => {
                let (upstream, mut end) = (upstream.clone(), end.clone());
                tokio::spawn(async move {
                    select! {
                        _ = end.changed() => {}
                        _ = carry(client, &upstream) => {}
                    }
                });
            }
        }
    }
}

/// Carries messages until the client closes its end.
async fn carry(client: TcpStream, upstream: &Upstream) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let mut requests = Messages::new(from_client, Framing::Resp);
    let mut to_client = Outbox::new(to_client);
    let (mut replies, mut to_server) = connect(upstream).await;
    let mut unanswered = VecDeque::new();
    loop {
        select! {
            request = requests.next() => {
                let Some(request) = request else { return Ok(()) };
                // The reply to a subscription is a push.
                if !resp::command(&request).ends_with("SUBSCRIBE") {
                    unanswered.push_back(request.clone());
                }
                to_server.push(request, Duration::ZERO);
                // If the server has closed its end, the next reply is missing.
                let _ = to_server.flush().await;
            }
            reply = replies.next() => match reply {
                Some(reply) => {
                    if !resp::is_push(&reply) {
                        unanswered.pop_front();
                    }
                    to_client.push(reply, Duration::ZERO);
                    to_client.flush().await?;
                }
                None => {
                    (replies, to_server) = connect(upstream).await;
                    for request in &unanswered {
                        to_server.push(request.clone(), Duration::ZERO);
                    }
                    let _ = to_server.flush().await;
                }
            },
        }
    }
}

/// Connects to the server, however long it takes until it runs.
async fn connect(upstream: &Upstream) -> (Messages, Outbox) {
    loop {
        match upstream.connect(Framing::Resp).await {
            Ok(connection) => return connection,
            Err(_) => sleep(RECONNECT_PAUSE).await,
        }
    }
}
