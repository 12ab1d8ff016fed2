//! Chromium, driven by WebDriver (W3C Recommendation of 5 June 2018).

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use reqwest::{Client, Method, header};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::wait::until_async;

use super::{replay::descendants, serve::client};

/// Chromium may take this long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// How the standard names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with a profile of its own. It is killed with its test.
pub(super) struct Browser {
    driver: Child,
    /// The URL of the session.
    session: String,
    client: Client,
    _folder: TempDir,
}

impl Browser {
    pub(super) async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver runs; the package chromium-driver has it");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, port) = line.split_once("started successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        let url = format!("http://127.0.0.1:{}/session", port.expect("it prints its port"));
        // Its sandbox can't be used by root, and needs what containers often forbid.
        let arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let arguments = [&arguments[..], &[&profile]].concat();
        let options = json!({"args": arguments});
        let capabilities = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let capabilities = json!({"capabilities": {"alwaysMatch": capabilities}});
        let mut browser = Self { driver, session: url, client: client(), _folder: folder };
        let session = browser.command("", capabilities).await;
        browser.session += &format!("/{}", session["sessionId"].as_str().unwrap());
        browser
    }

    /// Sends a command, and returns its result.
    async fn command(&self, path: &str, parameters: Value) -> Value {
        let request = self.client.request(Method::POST, format!("{}{path}", self.session));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let answer = request.body(parameters.to_string()).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path} {parameters}: {text}");
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        answer["value"].take()
    }

    pub(super) async fn open(&self, url: &str) {
        self.command("/url", json!({"url": url})).await;
    }

    /// The value of an expression of JavaScript.
    pub(super) async fn value(&self, expression: &str) -> Value {
        self.command("/execute/sync", json!({"script": format!("return {expression}"), "args": []}))
            .await
    }

    /// Waits until an expression is true.
    pub(super) async fn until(&self, expression: &str) {
        let is_true = async || Ok(self.value(expression).await == true);
        if until_async(PATIENCE, is_true).await.is_err() {
            panic!("{expression}: {}", self.value("document.body.innerText").await);
        }
    }

    /// Waits until an element has this text somewhere.
    pub(super) async fn until_text(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!(
            "document.querySelector({selector})?.innerText.includes({text}) ?? false"
        ))
        .await;
    }

    /// Clicks on an element, as a user does.
    pub(super) async fn click(&self, selector: &str) {
        let found = json!({"using": "css selector", "value": selector});
        let element = self.command("/element", found).await;
        let element = element[ELEMENT].as_str().unwrap();
        self.command(&format!("/element/{element}/click"), json!({})).await;
    }

    /// What the browser has reported of the page, such as scripts that its policy forbids.
    pub(super) async fn log(&self) -> Vec<String> {
        let entries = self.command("/se/log", json!({"type": "browser"})).await;
        let entries = entries.as_array().unwrap().iter();
        entries.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver would leave its browser behind.
        for process in descendants(self.driver.id()) {
            let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
