//! The server behind a proxy.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use tokio::net::{TcpStream, UnixStream};

use super::message::{Framing, Messages, Outbox};

/// Where the server behind a proxy listens.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// At a Unix socket.
    Socket(PathBuf),
    /// At a port.
    Port(SocketAddr),
}

impl From<PathBuf> for Upstream {
    fn from(socket: PathBuf) -> Self {
        Self::Socket(socket)
    }
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Self {
        Self::Port(address)
    }
}

impl Upstream {
    pub(super) async fn connect(&self, framing: Framing) -> io::Result<(Messages, Outbox)> {
        Ok(match self {
            Self::Socket(path) => {
                let (from, to) = UnixStream::connect(path).await?.into_split();
                (Messages::new(from, framing), Outbox::new(to))
            }
            Self::Port(address) => {
                let (from, to) = TcpStream::connect(address).await?.into_split();
                (Messages::new(from, framing), Outbox::new(to))
            }
        })
    }

    /// Has the server execute a request over a connection of its own, and returns the reply, or
    /// `None` if the server closes the connection.
    pub(super) async fn execute(
        &self,
        request: Vec<u8>,
        framing: Framing,
    ) -> io::Result<Option<Vec<u8>>> {
        let (mut replies, mut requests) = self.connect(framing).await?;
        requests.push(request, Duration::ZERO);
        requests.flush().await?;
        Ok(replies.next().await)
    }
}
