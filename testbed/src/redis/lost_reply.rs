//! A way to a Redis on which one reply is lost.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinHandle,
};

/// A way to the socket of a Redis on which one reply is lost: the first to a request that names a key,
/// unless it is an error. The request is done, and instead of its reply, the client sees the connection
/// end. All others pass. It ends with the runtime that it was made in.
#[derive(Debug)]
pub struct LostReply {
    address: SocketAddr,
    lost: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

impl LostReply {
    /// Makes a way to the server at a socket.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn on_the_way_to(socket: PathBuf, key: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let lost: Arc<AtomicBool> = Arc::default();
        let (state, key) = (lost.clone(), key.to_owned());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = UnixStream::connect(&socket).await {
                    tokio::spawn(carry(client, server, key.clone(), state.clone()));
                }
            }
        });
        Ok(Self { address, lost, accepting })
    }

    /// The URL of the Redis by this way.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Whether the reply was lost.
    pub fn has_been_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for LostReply {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Carries bytes in both directions until one end closes, or until the reply is lost.
async fn carry(
    mut client: TcpStream,
    mut server: UnixStream,
    key: String,
    lost: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let (mut request, mut reply) = ([0; 16 * 1024], [0; 16 * 1024]);
    let mut named = false;
    loop {
        tokio::select! {
            count = client.read(&mut request) => {
                let request = &request[..count?];
                named |= request.windows(key.len()).any(|part| part == key.as_bytes());
                server.write_all(request).await?;
                if request.is_empty() {
                    return Ok(());
                }
            }
            count = server.read(&mut reply) => {
                let reply = &reply[..count?];
                let is_error = reply.starts_with(b"-");
                if reply.is_empty() || named && !is_error && !lost.swap(true, Ordering::Relaxed) {
                    return Ok(());
                }
                named &= !is_error;
                client.write_all(reply).await?;
            }
        }
    }
}
