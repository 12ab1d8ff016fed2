//! Several servers that write to one bucket at once.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use testbed::{ObjectStorage, StorageServer, wait::until_async};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::serve;
use crate::{
    database::{get, offer},
    wire::{self, Answer},
};

const COUNTER: &str = "/v1/resources/counter";
const CLIENTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients know of their increments.
#[derive(Debug, Default)]
struct Increments {
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    ended: AtomicBool,
    is_unconditional: bool,
}

impl Increments {
    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Increments by read and conditional write until the end, through a server that may be gone.
    async fn run(&self, url: &str) {
        while !self.ended.load(Ordering::Relaxed) {
            // A server that was killed has no more clients.
            let Some(read) = ask(url, "GET", &[], "").await else { return };
            let (count, condition) = match read.status {
                404 => (0, ("If-None-Match", "*".to_owned())),
                200 => {
                    let version = read.header("etag").unwrap().to_owned();
                    (read.text().parse::<u64>().unwrap(), ("If-Match", version))
                }
                _ => continue,
            };
            let headers = [("Fencing-Token", "34"), (condition.0, condition.1.as_str())];
            let headers = if self.is_unconditional { &headers[..1] } else { &headers };
            match ask(url, "PUT", headers, &(count + 1).to_string()).await {
                Some(answer) if answer.status < 300 => {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Some(answer) if answer.status == 412 => {}
                Some(answer) if answer.status == 503 && answer.json()["outcome"] == "none" => {}
                Some(_) | None => {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether the counter has each acknowledged increment, and none twice.
    async fn are_kept(&self, server: &StorageServer) -> bool {
        let count: u64 = get(server, COUNTER).await.text().parse().unwrap();
        let (acknowledged, unknown) = (self.acknowledged(), self.unknown.load(Ordering::Relaxed));
        println!("{count}, of {acknowledged} acknowledged and {unknown} unknown");
        (acknowledged..=acknowledged + unknown).contains(&count)
    }
}

/// Asks a server. `None` if it gave no whole answer.
async fn ask(url: &str, method: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let request = format!(
        "{method} {COUNTER} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.ok()?;
    connection.write_all(request.as_bytes()).await.ok()?;
    let mut bytes = Vec::new();
    timeout(PATIENCE, connection.read_to_end(&mut bytes)).await.ok()?.ok()?;
    let answer =
        bytes.windows(4).any(|window| window == b"\r\n\r\n").then(|| wire::parse(&bytes))?;
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    (answer.body.len() == length).then_some(answer)
}

/// Clients of three servers increment a counter. One server is killed meanwhile, and another one started.
pub(super) async fn no_acknowledged_increment_is_lost(storage: &ObjectStorage) {
    let url = storage.url("rivals");
    let mut servers = [serve(&url, &[]).await, serve(&url, &[]).await, serve(&url, &[]).await];
    let urls = servers.each_ref().map(|server| server.url().to_owned());
    let increments = Increments::default();
    let clients = (0..CLIENTS).map(|client| increments.run(&urls[client % urls.len()]));
    let at_least = async |count| {
        until_async(PATIENCE, async || Ok(increments.acknowledged() >= count)).await.unwrap();
    };
    let faults = async {
        at_least(30).await;
        servers[0].process().kill().unwrap();
        let now = increments.acknowledged();
        at_least(now + 30).await;
        increments.ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all(clients), faults);
    assert!(increments.are_kept(&serve(&url, &[]).await).await);
}

/// The control: clients that write without a condition fail the same check.
pub(super) async fn increments_without_a_condition_are_lost(storage: &ObjectStorage) {
    let url = storage.url("unconditional");
    let servers = [serve(&url, &[]).await, serve(&url, &[]).await];
    let begun = Instant::now();
    loop {
        let increments = Increments { is_unconditional: true, ..Increments::default() };
        let clients =
            (0..CLIENTS).map(|client| increments.run(servers[client % servers.len()].url()));
        let end = async {
            until_async(PATIENCE, async || Ok(increments.acknowledged() >= 30)).await.unwrap();
            increments.ended.store(true, Ordering::Relaxed);
        };
        tokio::join!(join_all(clients), end);
        if !increments.are_kept(&servers[0]).await {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing was lost");
        offer(&servers[0], "DELETE", COUNTER, 34, "").await;
    }
}
