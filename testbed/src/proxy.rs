//! A proxy before a server, on which messages are lost, delayed, repeated or held back.
//!
//! A [`Rule`] sees each message and returns a [`Verdict`]. Most tests need no rule of their own:
//! the methods of [`Proxy`] set one for a single message, and [`SeededFaults`] decides by a seed.
//!
//! Start here; then `proxy/rule.rs`, and `proxy/connection.rs`, which carries out the verdicts.

mod connection;
mod hold;
mod message;
mod reconnecting;
mod resp;
mod rule;
mod seeded;
mod traffic;
mod trap;
mod upstream;

use std::{future::poll_fn, mem, net::SocketAddr, pin::pin, sync::Arc, task::Poll, time::Duration};

use anyhow::Context;
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    time::timeout,
};

use self::{
    connection::carry,
    traffic::Traffic,
    trap::{Target, Trap},
};
pub use self::{
    hold::{HeldRequest, Hold, LateRequest},
    message::Framing,
    reconnecting::ReconnectingProxy,
    rule::{Latency, Rule, Verdict},
    seeded::{Odds, SeededFaults, rough_odds},
    upstream::Upstream,
};

/// How long late requests may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy before a server, on a free port of 127.0.0.1. Each client has a connection of its own to
/// the server, which ends when the server's or the client's end does. All connections end when the
/// proxy is dropped.
///
/// ```
/// # async fn lose_one(redis: testbed::Redis) -> anyhow::Result<()> {
/// use testbed::Proxy;
///
/// let proxy = Proxy::start(redis.socket()).await?;
/// proxy.lose_reply_to("EVALSHA");
/// let client = redis::Client::open(proxy.url("redis"))?;
/// // …
/// assert!(proxy.has_struck());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    traffic: Arc<Traffic>,
    /// Notifies all connections that they end: by a value, or when it is dropped.
    ends: watch::Sender<()>,
}

impl Proxy {
    /// Starts a proxy before a server. Its messages are [`Framing::Chunks`].
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn start(upstream: impl Into<Upstream>) -> anyhow::Result<Self> {
        Self::start_framed(upstream, Framing::Chunks).await
    }

    /// Starts a proxy that divides bytes into messages in this way.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn start_framed(
        upstream: impl Into<Upstream>,
        framing: Framing,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let traffic = Arc::new(Traffic::new(upstream.into(), framing));
        let (ends, end) = watch::channel(());
        tokio::spawn(accept(listener, traffic.clone(), end));
        Ok(Self { address, traffic, ends })
    }

    /// Returns the address at which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL at which clients connect.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }

    /// Carries new connections to another server. Those that are open stay where they are.
    pub fn switch_to(&self, upstream: impl Into<Upstream>) {
        self.traffic.switch_to(upstream.into());
    }

    /// Adds a rule, which sees all messages from now on.
    pub fn add(&self, rule: impl Rule + 'static) {
        self.traffic.add(Box::new(rule));
    }

    /// Loses the next request with this text in it, and its connection.
    pub fn lose_request(&self, text: &str) {
        self.add(Trap::new(text, Target::Request));
    }

    /// Loses the reply to the next request with this text in it, and its connection. The request is
    /// executed. An error of Redis, such as that a script is missing, passes: the rule waits for
    /// the next request.
    pub fn lose_reply_to(&self, text: &str) {
        self.add(Trap::new(text, Target::Reply));
    }

    /// Loses the next message from the server with this text in it, and its connection.
    pub fn lose_message(&self, text: &str) {
        self.add(Trap::new(text, Target::Message));
    }

    /// Holds back the next request with this text in it, and all that follows on its connection.
    pub fn hold(&self, text: &str) -> Hold {
        let (receiver, hold) = Hold::new();
        self.add(Trap::new(text, Target::Held(Some(receiver))));
        hold
    }

    /// Whether every rule for a single message has seen its message, and lost or held it.
    pub fn has_struck(&self) -> bool {
        !self.traffic.is_any_rule_pending()
    }

    /// Returns how many requests with this text in them have come, also those that were lost.
    pub fn requests(&self, text: &str) -> usize {
        self.traffic.count(text)
    }

    /// Waits until all requests that arrive late, or once more, have been executed.
    ///
    /// # Errors
    /// If one is left after 30 seconds.
    pub async fn all_executed(&self) -> anyhow::Result<()> {
        let mut late = self.traffic.late.subscribe();
        let all_executed = timeout(PATIENCE, late.wait_for(|&late| late == 0)).await;
        all_executed.context("a late request was not executed")??;
        Ok(())
    }

    /// Cuts all connections, as a network is cut: both ends stay connected, and receive nothing.
    /// When this returns, nothing passes any more. New connections are accepted, and are silent.
    /// Only late requests, which have connections of their own, still reach the server.
    pub fn cut(&self) {
        *self.traffic.is_cut.write().expect("no connection panics") = true;
    }

    /// Lets new connections through again. Those that were cut are closed, so that both ends
    /// connect again.
    pub fn mend(&self) {
        let mut is_cut = self.traffic.is_cut.write().expect("no connection panics");
        if mem::take(&mut *is_cut) {
            // Before the lock is released: no connection that was cut takes another step.
            self.ends.send_replace(());
        }
    }
}

async fn accept(listener: TcpListener, traffic: Arc<Traffic>, mut end: watch::Receiver<()>) {
    loop {
        select! {
            biased;
            mended = end.changed() => if mended.is_err() { return },
            Ok((client, _)) = listener.accept() => {
                tokio::spawn(carry_unless_cut(client, traffic.clone(), end.clone()));
            }
        }
    }
}

/// Carries a connection, except while the proxy is cut, until it ends or the proxy ends it.
///
/// Each step of the connection reads the lock that a cut writes. So no step is under way when a cut
/// returns, and none follows: bytes stay where they are, and neither end sees the other close.
async fn carry_unless_cut(client: TcpStream, traffic: Arc<Traffic>, mut end: watch::Receiver<()>) {
    let mut connection = pin!(carry(client, traffic.clone()));
    let mut end = pin!(end.changed());
    poll_fn(|context| {
        let is_cut = traffic.is_cut.read().expect("no connection panics");
        match end.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending if *is_cut => Poll::Pending,
            Poll::Pending => connection.as_mut().poll(context),
        }
    })
    .await;
}
