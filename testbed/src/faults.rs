//! A network to a Redis on which requests and replies go wrong, as a seed decides.
//!
//! Redis' protocol numbers nothing: a reply belongs to the request whose turn it is. So nothing is
//! lost out of the middle of a connection. As with TCP, all that came before arrives, and the
//! connection ends. What is executed late, or again, comes over another connection.
//!
//! Scripts alone go wrong: what they are preceded by on a new connection doesn't.

mod connection;
mod decisions;
mod resp;
mod way;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, UnixStream},
    sync::watch,
    time::{sleep, timeout},
};

pub use self::decisions::{Decisions, Fault, Odds};
use self::{connection::Connection, resp::Messages};

const PATIENCE: Duration = Duration::from_secs(30);

/// A way to a Redis on which things go wrong. It ends with the runtime that it was made in.
pub struct FaultyProxy {
    address: SocketAddr,
    traffic: Arc<Traffic>,
}

/// What all connections of a proxy share.
struct Traffic {
    socket: PathBuf,
    decisions: Decisions,
    /// What was decided for each script, in the order in which they came.
    decided: Mutex<Vec<Option<Fault>>>,
    /// How many requests are still to be executed, late or again.
    held: watch::Sender<usize>,
}

impl FaultyProxy {
    pub async fn to(socket: PathBuf, decisions: Decisions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (decided, held) = (Mutex::default(), watch::Sender::default());
        let traffic = Arc::new(Traffic { socket, decisions, decided, held });
        let proxy = Self { address, traffic: traffic.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A server that is down is no reason for the proxy to be.
                if let Ok(server) = UnixStream::connect(&traffic.socket).await {
                    tokio::spawn(Connection::new(client, server, traffic.clone()).carry());
                }
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// What has gone wrong so far, or is still to, in the order of the requests.
    pub fn faults(&self) -> Vec<Fault> {
        self.traffic.decided.lock().unwrap().iter().copied().flatten().collect()
    }

    /// Waits until all that is late, or to be executed again, has been.
    pub async fn settled(&self) {
        let mut held = self.traffic.held.subscribe();
        timeout(PATIENCE, held.wait_for(|&held| held == 0)).await.unwrap().unwrap();
    }
}

impl Traffic {
    /// Decides what is to go wrong with a request, and counts what is to be executed later.
    fn fault_of(&self, request: &[u8]) -> Option<Fault> {
        if !matches!(resp::command(request).as_str(), "EVAL" | "EVALSHA") {
            return None;
        }
        let mut decided = self.decided.lock().unwrap();
        let fault = self.decisions.fault_of(decided.len().try_into().unwrap());
        decided.push(fault);
        if let Some(Fault::Late(_) | Fault::AgainLater(_)) = fault {
            self.held.send_modify(|held| *held += 1);
        }
        fault
    }

    /// Has the server execute a request after a while. Nobody learns the reply.
    fn execute_later(self: &Arc<Self>, request: Vec<u8>, wait: Duration) {
        let traffic = self.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            // One that is down doesn't execute it.
            if let Ok(mut server) = UnixStream::connect(&traffic.socket).await
                && server.write_all(&request).await.is_ok()
            {
                Messages::of(server).next().await;
            }
            traffic.held.send_modify(|held| *held -= 1);
        });
    }
}
