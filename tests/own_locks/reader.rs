//! A reader of the page, who types its commands.

use std::{net::SocketAddr, process::Command};

use serde_json::Value;
use tempfile::TempDir;
use testbed::StorageServer;

use super::page::commands;
use crate::{
    languages::{drivers, output},
    programs::storage_server,
    wire,
};

/// The default ports that the page's commands use.
const DEFAULT_PORTS: [u16; 4] = [2379, 2181, 6379, 8034];

/// A token and a holder that the storage has accepted.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) token: u64,
    pub(super) holder: String,
}

/// A reader with a storage server, and the page's program `pay.sh` in the working folder.
pub(super) struct Reader {
    server: StorageServer,
    folder: TempDir,
    ports: Vec<(u16, SocketAddr)>,
    variables: Vec<(&'static str, String)>,
}

impl Reader {
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A reader whose storage server has further arguments.
    pub(super) async fn start_with(arguments: &[&str]) -> Self {
        let server = StorageServer::start(&storage_server(), arguments).await.unwrap();
        let ports = vec![(8034, server.address())];
        let folder = TempDir::with_prefix("fenced-").unwrap();
        let reader = Self { server, folder, ports, variables: Vec::new() };
        reader.succeed(commands("Write under any lock", 0)).await;
        reader
    }

    /// Uses a private server in place of the one at a default port.
    pub(super) fn replace_port(&mut self, port: u16, address: SocketAddr) {
        self.ports.retain(|(other, _)| *other != port);
        self.ports.push((port, address));
    }

    pub(super) fn set(&mut self, variable: &'static str, value: impl Into<String>) {
        self.variables.push((variable, value.into()));
    }

    /// Runs commands that must succeed, and returns what they print.
    pub(super) async fn succeed(&self, commands: &str) -> String {
        let (is_success, text) = self.run(commands).await;
        assert!(is_success, "{text}");
        text
    }

    /// Runs commands under which `pay.sh` writes. An error is the type of the storage's rejection.
    pub(super) async fn pay(&self, commands: &str) -> Result<Grant, String> {
        let (_, text) = self.run(commands).await;
        let answers = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let answers: Vec<Value> = answers.filter(Value::is_object).collect();
        let last = answers.last().unwrap_or_else(|| panic!("the storage has answered: {text}"));
        if let Some(problem) = last["type"].as_str() {
            return Err(problem.trim_start_matches("/problems/").to_owned());
        }
        assert_eq!(answers.len(), 2, "a claim and a write: {text}");
        let (token, holder) = (&last["token"], &last["holder"]);
        Ok(Grant { token: token.as_u64().unwrap(), holder: holder.as_str().unwrap().to_owned() })
    }

    /// Writes with this token and holder, although another client may hold the lock by now.
    pub(super) async fn pay_late(&self, grant: &Grant) -> Result<Grant, String> {
        self.pay(&format!("sh pay.sh {} {} late", grant.token, grant.holder)).await
    }

    /// The value of the resource.
    pub(super) async fn value(&self) -> String {
        wire::request(self.server.url(), "GET", "/v1/resources/invoice-7", &[], "").await.text()
    }

    /// Two clients write one after the other. The first one wakes up, and is rejected.
    pub(super) async fn stale_token_is_rejected(&self, commands: &str) -> [Grant; 2] {
        let first = self.pay(commands).await.unwrap();
        let second = self.pay(commands).await.unwrap();
        assert!(first.token < second.token, "{first:?} {second:?}");
        assert_ne!(first.holder, second.holder);
        assert_eq!(self.pay_late(&first).await.unwrap_err(), "stale-token");
        assert_eq!(self.value().await, "by client 2");
        [first, second]
    }

    async fn run(&self, commands: &str) -> (bool, String) {
        let mut commands = commands.to_owned();
        for (port, address) in &self.ports {
            commands = commands.replace(&format!("127.0.0.1:{port}"), &address.to_string());
            commands = commands.replace(&format!("-p {port}"), &format!("-p {}", address.port()));
        }
        for port in DEFAULT_PORTS {
            let is_left = commands.contains(&format!("127.0.0.1:{port}"));
            assert!(!is_left, "no server is named for port {port}");
        }
        let mut shell = Command::new("sh");
        let python = drivers("python").join("bin");
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{path}", python.canonicalize().unwrap().display()));
        shell.envs(self.variables.iter().cloned()).current_dir(self.folder.path());
        shell.args(["-ec", &commands]);
        let output = output(shell).await;
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}
