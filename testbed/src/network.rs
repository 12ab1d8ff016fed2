//! A network that holds back what is sent.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

const SENT_WITHIN: Duration = Duration::from_secs(10);

/// A way to a server that can hold back what clients send to it. Answers pass at any time. It ends
/// with the runtime that it was made in.
#[derive(Debug)]
pub struct Network {
    address: SocketAddr,
    gate: watch::Sender<Gate>,
    accepting: JoinHandle<()>,
}

/// What becomes of what clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// It passes.
    Open,
    /// It would not pass, but nothing has come yet.
    Shut,
    /// It has come, and doesn't pass.
    Holding,
}

impl Network {
    /// Makes a way to the server at an address.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn to(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (gate, _) = watch::channel(Gate::Open);
        let accepting = tokio::spawn(accept(listener, server, gate.clone()));
        Ok(Self { address, gate, accepting })
    }

    /// Where it begins.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds back what is sent from now on.
    pub fn hold(&self) {
        self.gate.send_replace(Gate::Shut);
    }

    /// Waits until something has been sent, and is held back.
    ///
    /// # Errors
    /// If nothing is within the time.
    pub async fn holds_something(&self) -> anyhow::Result<()> {
        let mut gate = self.gate.subscribe();
        let holding = timeout(SENT_WITHIN, gate.wait_for(|gate| *gate == Gate::Holding)).await;
        holding.context("nothing was sent that could be held back")??;
        Ok(())
    }

    /// Delivers what was held back, and all that is sent from now on.
    pub fn deliver(&self) {
        self.gate.send_replace(Gate::Open);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, gate: watch::Sender<Gate>) {
    while let Ok((client, _)) = listener.accept().await {
        // A client whose connection is dropped here sees it closed.
        if let Ok(server) = TcpStream::connect(server).await {
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = server.into_split();
            tokio::spawn(requests(from_client, to_server, gate.clone()));
            tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
        }
    }
}

/// Carries what a client sends, whenever the gate is open.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    gate: watch::Sender<Gate>,
) -> anyhow::Result<()> {
    let mut buffer = [0; 16 * 1024];
    let mut opened = gate.subscribe();
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        gate.send_if_modified(|gate| {
            let holds = *gate == Gate::Shut;
            if holds {
                *gate = Gate::Holding;
            }
            holds
        });
        opened.wait_for(|gate| *gate == Gate::Open).await?;
        to.write_all(&buffer[..count]).await?;
    }
}
