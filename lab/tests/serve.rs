//! `lab serve`: that it plays real runs, for its own page only, and leaves no process.

mod browser;
mod opening;
mod sandbox;

use std::{
    fs::Permissions,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use reqwest::{Client, Method, RequestBuilder, StatusCode, header};
use rustix::process::{Pid, Signal, kill_process};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use serde_json::{Value, json};
use tempfile::{Builder, TempDir};
use testbed::process::lives;

use super::replay::descendants;

const SCENARIO: &str = "token-33-34";

/// A server of the page, which is ended with its test.
pub(super) struct Server {
    process: Child,
    /// Its address, without the token.
    pub(super) url: String,
    pub(super) token: String,
    client: Client,
    /// Where it keeps the data of its runs. One that is killed does not remove it.
    _folder: TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    fn start_at(address: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(["serve", "--no-open", "--listen", address, "--ttl-factor", "4"]);
        Self::start_as(command)
    }

    /// Starts a server by a command.
    fn start_as(mut command: Command) -> Self {
        // A PostgreSQL runs as another user.
        let folder = Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let mut process =
            command.env("TMPDIR", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (url, token) = line.trim().split_once("/#token=").unwrap();
        let (url, token) = (url.to_owned(), token.to_owned());
        Self { process, url, token, client: client(), _folder: folder }
    }

    /// Starts a server that was killed again, at its address.
    fn start_again(&mut self) {
        *self = Self::start_at(self.url.strip_prefix("http://").unwrap());
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Where the page is, in English, with its token.
    pub(super) fn address(&self) -> String {
        format!("{}/#lang=en&token={}", self.url, self.token)
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// A request with this JSON, without the token.
    fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string())
    }

    /// A request to start a run, without the token.
    fn start_request(&self, scenario: &str) -> RequestBuilder {
        self.post("/runs", &json!({"scenario": scenario}))
    }

    async fn start_run(&self) -> String {
        self.started(self.start_request(SCENARIO)).await
    }

    /// Starts what a request asks for, and returns its id.
    async fn started(&self, request: RequestBuilder) -> String {
        let answer = request.bearer_auth(&self.token).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        answer["id"].as_str().unwrap().to_owned()
    }

    fn events(&self, run: &str) -> RequestBuilder {
        self.request(Method::GET, &format!("/runs/{run}/events"))
    }

    /// Watches a run until it has paused its client. Then it has started all its servers.
    async fn watch_until_paused(&self, run: &str) {
        let mut watching = self.events(run).send().await.unwrap();
        let mut text = String::new();
        while !text.contains(r#""event":"paused""#) {
            let chunk = watching.chunk().await.unwrap().expect("the run goes on");
            text += &String::from_utf8_lossy(&chunk);
        }
    }

    /// Leaves a run, as a page does.
    async fn leave(&self, run: &str) {
        let leave = self.request(Method::DELETE, &format!("/runs/{run}")).bearer_auth(&self.token);
        assert_eq!(leave.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    }

    /// Waits until its runs have no processes. Ten minutes are enough for any machine.
    async fn wait_until_idle(&self, started: &[u32]) {
        tokio::time::timeout(Duration::from_secs(600), async {
            while started.iter().any(|process| lives(*process)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("the processes of the run end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Once it has been waited for, its number may be another's.
        if let Ok(None) = self.process.try_wait() {
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
            let _ = self.process.wait();
        }
    }
}

/// The lock client enables a TLS of `reqwest` without a provider of cryptography. So one must be named.
pub(super) fn client() -> Client {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Client::builder().tls_backend_preconfigured(config).build().unwrap()
}

/// The data of the events in a text of server-sent events, and of the run's end.
fn parsed(text: &str) -> (Vec<Value>, Option<Value>) {
    let data = |message: &str| {
        let line = message.lines().find_map(|line| line.strip_prefix("data: "))?;
        Some(serde_json::from_str(line).unwrap())
    };
    let (named, events): (Vec<&str>, Vec<&str>) =
        text.split("\n\n").partition(|message| message.starts_with("event: "));
    let end = named.into_iter().find(|message| message.starts_with("event: end"));
    (events.into_iter().filter_map(data).collect(), end.and_then(data))
}

#[tokio::test]
async fn double_click_plays_one_run_whose_events_arrive_and_arrive_again() {
    let server = Server::start();
    let (run, same) = tokio::join!(server.start_run(), server.start_run());
    assert_eq!(run, same);
    let (events, end) = parsed(&server.events(&run).send().await.unwrap().text().await.unwrap());
    let end = end.unwrap();
    assert_eq!(end["holds"], true, "{end}");
    assert_eq!(end["outcome"]["fenced"]["stale_writes_rejected"], 1, "{end}");
    let rejected = events.iter().position(|event| event["event"] == "rejected").unwrap();

    // A page that was cut off goes on after the last event that it has.
    let again = server.events(&run).header("Last-Event-ID", rejected.to_string());
    let (rest, end) = parsed(&again.send().await.unwrap().text().await.unwrap());
    assert_eq!((&rest[..], end.is_some()), (&events[rejected..], true));

    // When it has ended, another may start.
    assert_ne!(server.start_run().await, run);
}

#[tokio::test]
async fn only_the_page_itself_is_answered_and_nothing_starts_without_the_token() {
    let server = Server::start();
    let page = |name: &'static str, value: &str| {
        server.request(Method::GET, "/").header(name, value).send()
    };
    let own = server.url.strip_prefix("http://").unwrap();
    for (name, value, status) in [
        ("host", own, StatusCode::OK),
        ("host", "attacker.example", StatusCode::FORBIDDEN),
        ("origin", &*server.url, StatusCode::OK),
        ("origin", "http://attacker.example", StatusCode::FORBIDDEN),
        ("origin", "null", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(page(name, value).await.unwrap().status(), status, "{name}: {value}");
    }
    let page = server.request(Method::GET, "/").send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");

    let start = || server.start_request(SCENARIO);
    let foreign = start().bearer_auth(&server.token).header("origin", "http://attacker.example");
    for (request, status) in [
        (start(), StatusCode::UNAUTHORIZED),
        (start().bearer_auth("0".repeat(32)), StatusCode::UNAUTHORIZED),
        (foreign, StatusCode::FORBIDDEN),
        (server.request(Method::DELETE, "/runs/0"), StatusCode::UNAUTHORIZED),
        (server.start_request("none").bearer_auth(&server.token), StatusCode::NOT_FOUND),
        (server.post("/sandboxes", &sandbox::opening("a", "on")), StatusCode::UNAUTHORIZED),
        (server.post("/runs/0/actions", &json!({"action": "a"})), StatusCode::UNAUTHORIZED),
    ] {
        assert_eq!(request.send().await.unwrap().status(), status);
    }
    assert_eq!(descendants(server.process.id()), [] as [u32; 0], "nothing was started");
}

#[tokio::test]
async fn run_that_its_page_leaves_ends_with_its_processes() {
    let server = Server::start();
    let run = server.start_run().await;
    server.watch_until_paused(&run).await;
    let started = descendants(server.process.id());
    assert!(started.len() >= 3, "a Redis, a storage server and a client: {started:?}");
    server.leave(&run).await;
    server.wait_until_idle(&started).await;
    let (_, end) = parsed(&server.events(&run).send().await.unwrap().text().await.unwrap());
    assert_eq!(end, Some(json!({"left": true})));
}

#[tokio::test]
async fn processes_end_with_the_server() {
    let mut server = Server::start();
    let run = server.start_run().await;
    server.watch_until_paused(&run).await;
    let started = descendants(server.process.id());
    assert!(started.len() >= 3, "a Redis, a storage server and a client: {started:?}");
    kill_process(Pid::from_child(&server.process), Signal::TERM).unwrap();
    server.process.wait().unwrap();
    for process in started {
        assert!(!lives(process), "{process} is left");
    }
}

#[tokio::test]
async fn address_that_other_machines_reach_is_rejected() {
    let serve = ["serve", "--no-open", "--listen", "0.0.0.0:0"];
    let output = super::replay::lab(&serve).await;
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("0.0.0.0:0") && error.contains("loopback"), "{error}");
}
