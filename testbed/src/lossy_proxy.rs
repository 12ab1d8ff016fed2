//! A proxy between a client and a server, which loses, or holds back, what it is told to.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::oneshot,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A way to a server on which a request or a reply can be lost, with its connection, or a request held
/// back.
pub struct LossyProxy {
    pub address: SocketAddr,
    traffic: Arc<Mutex<Traffic>>,
}

/// Where the server is.
#[derive(Clone)]
pub enum Server {
    Socket(PathBuf),
    Port(SocketAddr),
}

/// What has passed, and what is not to.
#[derive(Default)]
struct Traffic {
    /// The requests that came, those too that were lost or held back.
    requests: Vec<Vec<u8>>,
    trap: Option<Trap>,
}

/// What is to happen to the next bytes that have a text in them.
struct Trap {
    text: Vec<u8>,
    fault: Fault,
}

enum Fault {
    /// The request does not arrive.
    LoseRequest,
    /// It arrives, and its reply does not.
    LoseReply,
    /// What comes from the server does not arrive.
    LoseMessage,
    /// The request arrives when it is told to.
    Hold(oneshot::Sender<Caught>),
}

/// A request that is to be held back.
pub struct Held {
    caught: oneshot::Receiver<Caught>,
}

/// A request that is held back. Its client waits for an answer.
#[must_use = "if it is dropped, the request is lost"]
pub struct Caught {
    request: Vec<u8>,
    server: Box<dyn Stream>,
    client: TcpStream,
}

/// A request that is held back, and whose client has been cut off.
#[must_use = "if it is dropped, the request is lost"]
pub struct Late {
    request: Vec<u8>,
    server: Box<dyn Stream>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl From<PathBuf> for Server {
    fn from(socket: PathBuf) -> Self {
        Self::Socket(socket)
    }
}

/// From a URL such as a storage server's.
impl From<&str> for Server {
    fn from(url: &str) -> Self {
        Self::Port(url.strip_prefix("http://").unwrap().parse().unwrap())
    }
}

impl LossyProxy {
    pub async fn to(server: impl Into<Server>) -> Self {
        let server = server.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let traffic: Arc<Mutex<Traffic>> = Arc::default();
        let all_traffic = traffic.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (traffic, server) = (all_traffic.clone(), server.clone());
                tokio::spawn(async move {
                    // A server that is down is no reason for the proxy to be.
                    if let Ok(server) = server.connect().await {
                        carry(client, server, &traffic).await;
                    }
                });
            }
        });
        Self { address, traffic }
    }

    /// Loses the reply to the next request that has this text in it: the server has done what it was
    /// asked, and the connection is cut.
    pub fn lose_reply_to(&self, text: &str) {
        self.set(text, Fault::LoseReply);
    }

    /// Loses the next request that has this text in it: the connection is cut, and the server hears
    /// nothing of it.
    pub fn lose_request(&self, text: &str) {
        self.set(text, Fault::LoseRequest);
    }

    /// Loses the next thing from the server that has this text in it, with its connection.
    pub fn lose_message(&self, text: &str) {
        self.set(text, Fault::LoseMessage);
    }

    /// Holds back the next request that has this text in it.
    pub fn hold(&self, text: &str) -> Held {
        let (hand_over, caught) = oneshot::channel();
        self.set(text, Fault::Hold(hand_over));
        Held { caught }
    }

    /// Whether what was to be lost, or held back, has been.
    pub fn has_lost_it(&self) -> bool {
        self.traffic.lock().unwrap().trap.is_none()
    }

    /// How many requests have come with this text in them.
    pub fn requests(&self, text: &str) -> usize {
        let traffic = self.traffic.lock().unwrap();
        traffic.requests.iter().filter(|request| contains(request, text.as_bytes())).count()
    }

    fn set(&self, text: &str, fault: Fault) {
        let trap = Trap { text: text.as_bytes().to_vec(), fault };
        self.traffic.lock().unwrap().trap = Some(trap);
    }
}

impl Server {
    async fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path).await?),
            Self::Port(address) => Box::new(TcpStream::connect(address).await?),
        })
    }
}

impl Traffic {
    /// What is to happen to a request; `None` if nothing is.
    fn fault_of_request(&mut self, request: &[u8]) -> Option<Fault> {
        self.requests.push(request.to_vec());
        self.take(request, |fault| !matches!(fault, Fault::LoseMessage))
    }

    fn loses_message(&mut self, message: &[u8]) -> bool {
        self.take(message, |fault| matches!(fault, Fault::LoseMessage)).is_some()
    }

    fn take(&mut self, bytes: &[u8], is_meant: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let trap = self.trap.take_if(|trap| is_meant(&trap.fault) && contains(bytes, &trap.text));
        trap.map(|trap| trap.fault)
    }
}

/// Carries bytes in both directions until one end closes, or something is lost, and then closes both.
async fn carry(mut client: TcpStream, mut server: Box<dyn Stream>, traffic: &Mutex<Traffic>) {
    let (mut from_client, mut from_server) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut loses_reply = false;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(count @ 1..) = read else { return };
                let request = &from_client[..count];
                let fault = traffic.lock().unwrap().fault_of_request(request);
                match fault {
                    None => {}
                    Some(Fault::LoseReply) => loses_reply = true,
                    Some(Fault::Hold(hand_over)) => {
                        let _ = hand_over.send(Caught { request: request.to_vec(), server, client });
                        return;
                    }
                    Some(Fault::LoseRequest | Fault::LoseMessage) => return,
                }
                if server.write_all(request).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(count @ 1..) = read else { return };
                let message = &from_server[..count];
                let lost = loses_reply || traffic.lock().unwrap().loses_message(message);
                if lost || client.write_all(message).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Held {
    /// Waits until the request has come.
    pub async fn caught(self) -> Caught {
        timeout(PATIENCE, self.caught).await.expect("no such request came").unwrap()
    }
}

impl Caught {
    /// Cuts off the client, which doesn't learn what became of its request.
    pub fn cut(self) -> Late {
        drop(self.client);
        Late { request: self.request, server: self.server }
    }
}

impl Late {
    /// Delivers the request after all, once more each time, and tells what the server says to it.
    pub async fn deliver(&mut self) -> String {
        self.server.write_all(&self.request).await.unwrap();
        let mut answer = vec![0; 1 << 16];
        let read = timeout(PATIENCE, self.server.read(&mut answer)).await;
        let count = read.expect("no answer").unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
