//! `/v1/events`: the server's decisions as they happen.

mod decisions;
mod end;
mod resumed;
mod scope;
mod slow;

use std::time::Duration;

use serde_json::{Value, json};
use testbed::StorageServer;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::wire;

const PATIENCE: Duration = Duration::from_secs(30);

/// How many decisions the server keeps.
const KEPT: usize = 4096;
/// How many writes a transaction may have.
const MAX_WRITES: usize = 64;

/// A client that watches. It speaks HTTP/1.0, whose answers have no chunks.
struct Watching(BufReader<TcpStream>);

/// A server-sent event.
#[derive(Debug, PartialEq)]
struct Event {
    id: String,
    /// The empty one is of a decision.
    name: String,
    data: Value,
}

impl Watching {
    /// Begins to watch, on this connection.
    async fn on(mut connection: TcpStream, headers: &[(&str, &str)]) -> Self {
        let mut head = "GET /v1/events HTTP/1.0\r\nHost: localhost\r\n".to_owned();
        head.extend(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
        connection.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        let mut watching = Self(BufReader::new(connection));
        let mut lines = watching.lines("\r\n").await.unwrap();
        assert!(lines.remove(0).contains(" 200 "), "{lines:?}");
        assert!(lines.contains(&"content-type: text/event-stream".to_owned()), "{lines:?}");
        watching
    }

    async fn with_headers(server: &StorageServer, headers: &[(&str, &str)]) -> Self {
        Self::on(wire::connect(server.url()).await, headers).await
    }

    /// Watches from now on, and returns the id of the beginning.
    async fn start(server: &StorageServer) -> (Self, String) {
        let mut watching = Self::with_headers(server, &[]).await;
        let begin = watching.next().await.unwrap();
        assert_eq!((&*begin.name, &begin.data), ("begin", &json!({"resumed": false})));
        (watching, begin.id)
    }

    /// Goes on after an event, and returns the first one.
    async fn after(server: &StorageServer, id: &str) -> (Self, Event) {
        let mut watching = Self::with_headers(server, &[("Last-Event-ID", id)]).await;
        let begin = watching.next().await.unwrap();
        (watching, begin)
    }

    /// The lines up to an empty one; `None` at the end of the stream.
    async fn lines(&mut self, end: &str) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = timeout(PATIENCE, self.0.read_line(&mut line)).await;
            match read.expect("nothing comes").unwrap() {
                0 => return None,
                _ if line == end => return Some(lines),
                _ => lines.push(line.trim_end_matches(['\r', '\n']).to_owned()),
            }
        }
    }

    /// The next event, or sign of life.
    async fn next_or_alive(&mut self) -> Option<Event> {
        let lines = self.lines("\n").await?;
        let field = |name: &str| {
            let value = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.unwrap_or_default().to_owned()
        };
        let (id, name, data) = (field("id"), field("event"), field("data"));
        let data = if data.is_empty() { Value::Null } else { serde_json::from_str(&data).unwrap() };
        Some(Event { id, name, data })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.next_or_alive().await?;
            if !event.data.is_null() {
                return Some(event);
            }
        }
    }

    /// The next event, which is a decision.
    async fn decision(&mut self) -> Event {
        let event = self.next().await.expect("the stream goes on");
        assert_eq!(event.name, "", "{event:?}");
        event
    }

    /// The resources of the next decisions.
    async fn resources(&mut self, count: usize) -> Vec<String> {
        let mut resources = Vec::new();
        for _ in 0..count {
            resources.push(self.decision().await.data["resource"].as_str().unwrap().to_owned());
        }
        resources
    }
}

async fn write(server: &StorageServer, resource: &str, token: u64) -> u16 {
    let token = token.to_string();
    let headers = [("Fencing-Token", token.as_str())];
    let path = format!("/v1/resources/{resource}");
    wire::request(server.url(), "PUT", &path, &headers, "x").await.status
}

/// Has the server decide so many times at once, on new resources whose names begin with this.
async fn decide_many(server: &StorageServer, names: &str) {
    let write = |number| json!({"resource": format!("{names}{number}"), "token": 1, "value": null});
    let writes: Vec<_> = (0..MAX_WRITES).map(write).collect();
    let transaction = json!({"writes": writes}).to_string();
    let headers = [("Content-Type", "application/json")];
    let answer =
        wire::request(server.url(), "POST", "/v1/transactions", &headers, transaction).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
