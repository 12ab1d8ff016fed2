//! A tap on a client's connections: it carries every byte, and notes what was said.
//!
//! It listens on a port of its own for each server, in the client's process. So it is paused and killed with
//! the client, and delays nothing else. A connection through it ends when either end does. It parses the bytes
//! of HTTP, Redis and PostgreSQL. It never records passwords.

mod address;
mod http;
mod ledger;
mod postgres;
mod redis;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream, UnixStream},
    select,
};

use self::{address::Address, ledger::Ledger};
use super::setup::{LockSetup, Setup, StoreSetup};
use crate::record::Wire;

/// How many exchanges an event keeps.
const MOST_EXCHANGES: usize = 40;
/// How many bytes are carried at once.
const CHUNK: usize = 16 * 1024;

/// All taps of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    conversations: Mutex<Vec<Arc<Mutex<Conversation>>>>,
    /// The number of the next request.
    next: Arc<AtomicU64>,
}

/// The server's side of a connection.
#[derive(Clone, Debug)]
enum Server {
    Socket(PathBuf),
    /// A host and a port.
    Port(String),
}

/// A language that a client and a server speak.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    Http,
    Redis,
    Postgres,
}

/// What was said over a connection.
#[derive(Debug)]
enum Conversation {
    Http(http::Conversation),
    Redis(redis::Conversation),
    Postgres(postgres::Conversation),
}

impl Taps {
    /// The same setup, with a tap before each server. A server that no tap understands stays as it is.
    pub(super) async fn tapped(&self, setup: &Setup) -> anyhow::Result<Setup> {
        let lock = match &setup.lock {
            LockSetup::Redis(url) => LockSetup::Redis(self.tap_url(url).await?),
            LockSetup::Etcd(url) => LockSetup::Etcd(self.tap_url(url).await?),
            LockSetup::Row { url, expiry } => {
                LockSetup::Row { url: self.tap_url(url).await?, expiry: *expiry }
            }
            LockSetup::Advisory(url) => LockSetup::Advisory(self.tap_url(url).await?),
            LockSetup::Postgres(url) => LockSetup::Postgres(self.tap_url(url).await?),
            LockSetup::Key(url) => LockSetup::Key(self.tap_url(url).await?),
            LockSetup::Redlock(nodes) => LockSetup::Redlock(self.tap_urls(nodes).await?),
            LockSetup::NaiveRedlock { nodes, kind } => {
                LockSetup::NaiveRedlock { nodes: self.tap_urls(nodes).await?, kind: *kind }
            }
            LockSetup::ZooKeeper(_) | LockSetup::None => setup.lock.clone(),
        };
        let store = match &setup.store {
            StoreSetup::Server { url, offer } => {
                StoreSetup::Server { url: self.tap_url(url).await?, offer: *offer }
            }
            StoreSetup::Table { url, guard } => {
                StoreSetup::Table { url: self.tap_url(url).await?, guard: *guard }
            }
            StoreSetup::Sale { url, guard } => {
                StoreSetup::Sale { url: self.tap_url(url).await?, guard: *guard }
            }
            StoreSetup::None => StoreSetup::None,
        };
        Ok(Setup { lock, store, ..setup.clone() })
    }

    /// Takes what went over the wire since it was last taken. A request without an answer is taken
    /// without one.
    pub(super) fn take(&self) -> Wire {
        let mut conversations = locked(&self.0.conversations);
        let mut noted: Vec<_> =
            conversations.iter().flat_map(|one| locked(one).ledger().take()).collect();
        // Nobody adds to one whose connection has ended.
        conversations.retain(|one| Arc::strong_count(one) > 1);
        noted.sort_by_key(|noted| noted.number);
        let omitted = noted.len().saturating_sub(MOST_EXCHANGES);
        // The last one has decided the event.
        noted.drain(..omitted);
        let mut wire = Wire { omitted, ..Wire::default() };
        for noted in noted {
            wire.exchanges.push(noted.exchange);
            wire.scripts.extend(noted.script);
        }
        wire
    }

    async fn tap_urls(&self, urls: &[String]) -> io::Result<Vec<String>> {
        let mut tapped = Vec::new();
        for url in urls {
            tapped.push(self.tap_url(url).await?);
        }
        Ok(tapped)
    }

    /// The URL of a tap before the server of this URL.
    async fn tap_url(&self, url: &str) -> io::Result<String> {
        let Some(address) = Address::parse(url) else { return Ok(url.to_owned()) };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (taps, Address { server, protocol, name, scheme, rest }) = (self.clone(), address);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let ledger = Ledger::new(taps.0.next.clone());
                let conversation = Conversation::new(protocol, name.clone(), ledger);
                let conversation = Arc::new(Mutex::new(conversation));
                locked(&taps.0.conversations).push(conversation.clone());
                tokio::spawn(carry(client, server.clone(), conversation));
            }
        });
        Ok(format!("{scheme}127.0.0.1:{port}{rest}"))
    }
}

impl Conversation {
    /// A conversation with a server of this name.
    fn new(protocol: Protocol, server: String, ledger: Ledger) -> Self {
        match protocol {
            Protocol::Http => Self::Http(http::Conversation::new(server, ledger)),
            Protocol::Redis => Self::Redis(redis::Conversation::new(server, ledger)),
            Protocol::Postgres => Self::Postgres(postgres::Conversation::new(server, ledger)),
        }
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        match self {
            Self::Http(one) => one.note_sent(bytes),
            Self::Redis(one) => one.note_sent(bytes),
            Self::Postgres(one) => one.note_sent(bytes),
        }
    }

    fn note_received(&mut self, bytes: &[u8]) {
        match self {
            Self::Http(one) => one.note_received(bytes),
            Self::Redis(one) => one.note_received(bytes),
            Self::Postgres(one) => one.note_received(bytes),
        }
    }

    fn ledger(&mut self) -> &mut Ledger {
        match self {
            Self::Http(one) => &mut one.ledger,
            Self::Redis(one) => &mut one.ledger,
            Self::Postgres(one) => &mut one.ledger,
        }
    }
}

/// Carries a connection until either end closes it. The client of a server that is down sees its
/// connection end.
async fn carry(client: TcpStream, server: Server, conversation: Arc<Mutex<Conversation>>) {
    // An error is an end, which the other side sees as one.
    let _ = match server {
        Server::Socket(path) => match UnixStream::connect(path).await {
            Ok(server) => carry_both(client, server, &conversation).await,
            Err(error) => Err(error),
        },
        Server::Port(address) => match TcpStream::connect(address).await {
            Ok(server) => {
                let _ = server.set_nodelay(true);
                carry_both(client, server, &conversation).await
            }
            Err(error) => Err(error),
        },
    };
}

async fn carry_both(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    conversation: &Mutex<Conversation>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), split(server));
    // Bytes are noted before they are carried on, so that a client that has its answer finds it recorded.
    let note_sent = |bytes: &[u8]| locked(conversation).note_sent(bytes);
    let note_received = |bytes: &[u8]| locked(conversation).note_received(bytes);
    select! {
        ended = carry_one_way(from_client, to_server, note_sent) => ended,
        ended = carry_one_way(from_server, to_client, note_received) => ended,
    }
}

async fn carry_one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    note: impl Fn(&[u8]),
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let bytes = match from.read(&mut chunk).await? {
            0 => return Ok(()),
            length => &chunk[..length],
        };
        note(bytes);
        to.write_all(bytes).await?;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
