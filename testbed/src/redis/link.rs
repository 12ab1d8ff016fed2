//! A link between two servers that can be cut.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::{Mutex, watch},
    task::{JoinHandle, JoinSet},
};

/// A way to a server's socket that can be cut, as a network is cut: both ends keep their connections
/// and hear nothing. The link ends with the runtime that it was made in.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    cut: watch::Sender<bool>,
    /// What carries bytes, and gives its connection back when the link is cut.
    carriers: JoinSet<Option<Ends>>,
    /// Connections over which nothing comes any more.
    silent: Vec<Ends>,
}

/// The two ends of a connection through the link, the second of which may not have been made.
#[derive(Debug)]
struct Ends {
    _client: TcpStream,
    _server: Option<UnixStream>,
}

impl Link {
    /// Makes a link to the server at a socket.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn to(socket: PathBuf) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state: Arc<Mutex<State>> = Arc::default();
        let accepting = tokio::spawn(accept(listener, socket, state.clone()));
        Ok(Self { address, state, accepting })
    }

    /// Where the link begins.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts it: when this returns, nothing passes any more that hasn't passed, in neither direction.
    /// New connections are taken, and nobody speaks on them.
    pub async fn cut(&self) {
        let mut state = self.state.lock().await;
        state.cut.send_replace(true);
        while let Some(carrier) = state.carriers.join_next().await {
            state.silent.extend(carrier.ok().flatten());
        }
    }

    /// Mends it: the connections that it was cut with are closed, so that both ends make new ones.
    pub async fn mend(&self) {
        let mut state = self.state.lock().await;
        state.silent.clear();
        state.cut.send_replace(false);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, state: Arc<Mutex<State>>) {
    while let Ok((client, _)) = listener.accept().await {
        let mut state = state.lock().await;
        if *state.cut.borrow() {
            state.silent.push(Ends { _client: client, _server: None });
        } else if let Ok(server) = UnixStream::connect(&socket).await {
            let cut = state.cut.subscribe();
            state.carriers.spawn(carry(client, server, cut));
            // Connections that their own ends have closed.
            while state.carriers.try_join_next().is_some() {}
        }
    }
}

/// Carries bytes in both directions until one end closes, and then closes the other, or until the link
/// is cut.
async fn carry(
    mut client: TcpStream,
    mut server: UnixStream,
    mut cut: watch::Receiver<bool>,
) -> Option<Ends> {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        biased;
        _ = cut.wait_for(|&cut| cut) => {}
        () = forward(from_client, to_server) => return None,
        () = forward(from_server, to_client) => return None,
    }
    Some(Ends { _client: client, _server: Some(server) })
}

async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
