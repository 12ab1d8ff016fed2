//! A proxy between a client and a server, which loses what it is told to lose.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, UnixStream},
};

/// A way to a server's socket on which replies can be lost, each with its connection.
pub(crate) struct LossyProxy {
    pub(crate) address: SocketAddr,
    lose_next_reply: Arc<AtomicBool>,
}

impl LossyProxy {
    pub(crate) async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let lose_next_reply = Arc::new(AtomicBool::new(false));
        let lose = lose_next_reply.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                let lose = lose.clone();
                tokio::spawn(async move {
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                        if lose.swap(false, Ordering::SeqCst)
                            || to_client.write_all(&buffer[..count]).await.is_err()
                        {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, lose_next_reply }
    }

    pub(crate) fn lose_next_reply(&self) {
        self.lose_next_reply.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_lost_it(&self) -> bool {
        !self.lose_next_reply.load(Ordering::SeqCst)
    }
}
