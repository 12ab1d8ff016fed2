//! A restart loses no request: two servers behind a proxy, and one server whose parent keeps the socket.

use std::{
    net::TcpListener,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::{Postgres, Proxy, StorageServer, installed, process::Process, wait::until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::{
    logs::stop,
    programs::{STORAGE_SERVER, storage_server},
};

const PATIENCE: Duration = Duration::from_secs(30);
const RESTARTS: usize = 3;
/// A server that drains waits 1 s for the next request of a connection. A client on a busy machine
/// may take longer, and that is no fault of the server.
const STALL: Duration = Duration::from_millis(900);

/// Clients that write all the time: half of them with a connection for each request.
struct Load {
    clients: JoinSet<()>,
    results: Arc<Results>,
}

#[derive(Default)]
struct Results {
    answered: AtomicU64,
    failed: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    fn start(address: &str) -> Self {
        let results = Arc::<Results>::default();
        let mut clients = JoinSet::new();
        for client in 0..4 {
            clients.spawn(write(address.to_owned(), client, results.clone()));
        }
        Self { clients, results }
    }

    /// Waits until requests have been answered that were sent after this call.
    async fn goes_on(&self) {
        let enough = self.results.answered.load(SeqCst) + 50;
        let answered = || Ok(self.results.answered.load(SeqCst) >= enough);
        until(PATIENCE, answered).await.unwrap();
    }

    /// Ends it, and returns how many requests failed.
    async fn end(self) -> u64 {
        self.results.is_over.store(true, SeqCst);
        self.clients.join_all().await;
        self.results.failed.load(SeqCst)
    }
}

async fn write(address: String, client: usize, results: Arc<Results>) {
    let mut kept = None;
    let mut answered_at = Instant::now();
    while !results.is_over.load(SeqCst) {
        let mut sent_at = answered_at;
        kept = match request(&address, client, kept.take(), &mut sent_at).await {
            Ok(stream) => {
                results.answered.fetch_add(1, SeqCst);
                stream.filter(|_| client.is_multiple_of(2))
            }
            Err(_) => {
                let has_stalled = sent_at - answered_at > STALL;
                results.failed.fetch_add(u64::from(!has_stalled), SeqCst);
                None
            }
        };
        answered_at = Instant::now();
    }
}

/// Sends a request, and returns its connection unless the server says that it will close it. Notes
/// when the request was sent.
async fn request(
    address: &str,
    client: usize,
    kept: Option<TcpStream>,
    sent_at: &mut Instant,
) -> anyhow::Result<Option<TcpStream>> {
    let exchange = async {
        let mut stream = match kept {
            Some(stream) => stream,
            None => TcpStream::connect(address).await?,
        };
        let head = format!("PUT /v1/fences/{client} HTTP/1.1\r\nHost: localhost\r\n");
        let sent = stream.write_all(format!("{head}Fencing-Token: 34\r\n\r\n").as_bytes()).await;
        *sent_at = Instant::now();
        sent?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let read = stream.read_buf(&mut answer).await?;
            anyhow::ensure!(read > 0, "the connection was closed");
        }
        anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "rejected");
        let answer = String::from_utf8(answer)?;
        Ok((!answer.contains("connection: close")).then_some(stream))
    };
    timeout(PATIENCE, exchange).await?
}

#[tokio::test]
async fn draining_server_answers_the_last_request_of_each_connection() {
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let address = server.address().to_string();
    let request = async |connection| request(&address, 0, connection, &mut Instant::now()).await;
    let kept = request(None).await.unwrap();
    assert!(kept.is_some(), "the control: a connection is kept while the server does not drain");
    let silent = TcpStream::connect(&address).await.unwrap();
    server.process().signal(Signal::TERM).unwrap();
    until(PATIENCE, || Ok(server.log()?.contains("draining"))).await.unwrap();
    // All at once, because the server waits for 1 s.
    let last = tokio::join!(request(kept), request(Some(silent)), request(None));
    for connection in [last.0, last.1, last.2] {
        assert!(connection.unwrap().is_none());
    }
    assert!(server.process().exit(PATIENCE).await.unwrap().success());
    request(None).await.unwrap_err();
}

#[tokio::test]
async fn rolling_restart_of_two_servers_behind_a_proxy_fails_no_request() {
    let postgres = Postgres::start().await.unwrap();
    let url = postgres.url();
    let program = storage_server();
    let start = async || StorageServer::start_on(&program, &url, &[]).await.unwrap();
    let (mut serving, mut other) = (start().await, start().await);
    let proxy = Proxy::start(serving.address()).await.unwrap();
    let load = Load::start(&proxy.address().to_string());
    for _ in 0..RESTARTS {
        load.goes_on().await;
        proxy.switch_to(other.address());
        stop(&mut serving).await;
        serving = std::mem::replace(&mut other, start().await);
    }
    load.goes_on().await;
    assert_eq!(load.end().await, 0);

    // The control: without the switch, requests fail.
    let proxy = Proxy::start(serving.address()).await.unwrap();
    let load = Load::start(&proxy.address().to_string());
    load.goes_on().await;
    stop(&mut serving).await;
    until(PATIENCE, || Ok(load.results.failed.load(SeqCst) > 0)).await.unwrap();
    proxy.switch_to(other.address());
    load.goes_on().await;
    assert_ne!(load.end().await, 0);
}

/// At each line on stdin, stops the server and starts another, as systemd does: the first has ended
/// before the second starts. The servers end with this script.
const PARENT: &str = "
    while read -r _; do
        if [ -n \"$server\" ]; then kill -TERM \"$server\"; wait \"$server\"; fi
        (export LISTEN_PID=$BASHPID; exec setpriv --pdeathsig KILL \"$@\") &
        server=$!
    done";

/// Restarts the server of a parent under load, and returns how many requests failed.
async fn restart_under_load(mut parent: Process, address: &str) -> u64 {
    let listening = format!("listening on http://{address}");
    parent.write_line("start").unwrap();
    assert_eq!(parent.line(PATIENCE).await.unwrap(), listening);
    let load = Load::start(address);
    for _ in 0..RESTARTS {
        load.goes_on().await;
        parent.write_line("restart").unwrap();
        assert_eq!(parent.line(PATIENCE).await.unwrap(), listening);
    }
    load.goes_on().await;
    load.end().await
}

fn server(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", PARENT, "bash", STORAGE_SERVER, "--database-url"]);
    command.arg(format!("sqlite:{}", folder.join("fenced.db").display())).args(arguments);
    command
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn restart_with_a_socket_that_the_parent_keeps_fails_no_request() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let address = free_address();
    let program = installed("systemd-socket-activate", &[], "the package systemd").unwrap();
    let server = server(folder.path(), &[]);
    let mut command = Command::new(program);
    command.args(["--listen", &address]).arg(server.get_program()).args(server.get_args());
    let parent = Process::spawn("parent", &command, folder.path()).unwrap();
    // It starts its program at the first connection.
    let connects = || Ok(std::net::TcpStream::connect(&address).is_ok());
    until(PATIENCE, connects).await.unwrap();
    assert_eq!(restart_under_load(parent, &address).await, 0);
}

/// The control: a server that opens its own socket.
#[tokio::test]
async fn restart_without_a_passed_socket_fails_requests() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let address = free_address();
    let command = server(folder.path(), &["--listen", &address]);
    let parent = Process::spawn("parent", &command, folder.path()).unwrap();
    assert_ne!(restart_under_load(parent, &address).await, 0);
}
