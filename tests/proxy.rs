//! A proxy between a client and a server, which loses what it is told to lose.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UnixStream},
};

/// A way to a server's socket on which a reply can be lost, with its connection.
pub(crate) struct LossyProxy {
    pub(crate) address: SocketAddr,
    lose_reply_to: Arc<Mutex<Option<Vec<u8>>>>,
}

impl LossyProxy {
    pub(crate) async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let lose_reply_to: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
        let marked = lose_reply_to.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let marked = marked.clone();
                let lose = Arc::new(AtomicBool::new(false));
                let lose_reply = lose.clone();
                let mark = move |request: &[u8]| {
                    let mut marked = marked.lock().unwrap();
                    if marked.as_ref().is_some_and(|mark| contains(request, mark)) {
                        *marked = None;
                        lose.store(true, Ordering::SeqCst);
                    }
                    true
                };
                let pass = move |_: &[u8]| !lose_reply.load(Ordering::SeqCst);
                tokio::spawn(forward(from_client, to_server, mark));
                tokio::spawn(forward(from_server, to_client, pass));
            }
        });
        Self { address, lose_reply_to }
    }

    /// Loses the reply to the next request that has this text in it.
    pub(crate) fn lose_reply_to(&self, text: &str) {
        *self.lose_reply_to.lock().unwrap() = Some(text.as_bytes().to_vec());
    }

    pub(crate) fn has_lost_it(&self) -> bool {
        self.lose_reply_to.lock().unwrap().is_none()
    }
}

/// Forwards what passes, until something doesn't.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    passes: impl Fn(&[u8]) -> bool,
) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !passes(&buffer[..count]) || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
