//! Chromium, used through its driver (WebDriver, <https://www.w3.org/TR/webdriver2/>).

use std::{
    process::Command,
    time::{Duration, Instant},
};

use reqwest::{Client, Method, header};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{installed, process::Process};

use super::{replay::descendants, serve::client};

/// Chromium may take this long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The name of an element's id in answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with a profile of its own. It ends when this is dropped.
pub(super) struct Browser {
    driver: Process,
    session: String,
    client: Client,
    _folder: TempDir,
}

impl Browser {
    pub(super) async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let driver = installed("chromedriver", &[], "the package chromium-driver").unwrap();
        let chromium = installed("chromium", &[], "the package chromium").unwrap();
        let mut command = Command::new(driver);
        command.arg("--port=0").env("HOME", folder.path()).env("TMPDIR", folder.path());
        let mut driver = Process::spawn("chromedriver", &command, folder.path()).unwrap();
        let port = loop {
            let line = driver.line(PATIENCE).await.unwrap();
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        let url = format!("http://127.0.0.1:{port}/session");
        let (client, session) = (client(), url.clone());
        let mut browser = Self { driver, session, client, _folder: folder };
        // Its sandbox can't be used by root, and needs what containers often forbid.
        let options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let options = json!({"binary": chromium, "args": options});
        let capabilities = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let capabilities = json!({"alwaysMatch": capabilities});
        let started = browser.ask(Method::POST, "", json!({"capabilities": capabilities})).await;
        browser.session = format!("{url}/{}", started["sessionId"].as_str().unwrap());
        browser
    }

    pub(super) async fn open(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    /// Types into an element, which gets the focus. Into an input for files, that is a path.
    pub(super) async fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        let path = format!("/element/{}/value", element[ELEMENT].as_str().unwrap());
        self.post(&path, json!({"text": text})).await;
    }

    /// Runs a script in the page, and returns its result.
    pub(super) async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// The value of an expression in the page.
    pub(super) async fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression}")).await
    }

    /// Waits until an element has this text somewhere.
    pub(super) async fn wait_until_text(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.wait_until(&format!("document.querySelector({selector})?.innerText.includes({text})"))
            .await;
    }

    /// What the browser has reported of the page, such as scripts that its policy forbids.
    pub(super) async fn log(&self) -> Vec<String> {
        let entries = self.post("/se/log", json!({"type": "browser"})).await;
        let entries = entries.as_array().unwrap().iter();
        entries.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until an expression is true in the page.
    pub(super) async fn wait_until(&self, expression: &str) {
        let begun = Instant::now();
        while self.run(&format!("return Boolean({expression})")).await != json!(true) {
            if begun.elapsed() > PATIENCE {
                let text = self.run("return document.body.innerText").await;
                panic!("not true: {expression}, on {}", text.as_str().unwrap());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Moves the mouse over an element, and presses its button, as a hand does.
    pub(super) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        let script = "arguments[0].scrollIntoView({ block: 'center' })";
        self.post("/execute/sync", json!({"script": script, "args": [element]})).await;
        let origin = json!({(ELEMENT): element[ELEMENT]});
        let over = json!({"type": "pointerMove", "origin": origin, "x": 0, "y": 0});
        let [down, up] =
            ["pointerDown", "pointerUp"].map(|kind| json!({"type": kind, "button": 0}));
        let actions = json!([over, down, up]);
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": actions});
        self.post("/actions", json!({"actions": [mouse]})).await;
    }

    async fn element(&self, selector: &str) -> Value {
        self.post("/element", json!({"using": "css selector", "value": selector})).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body).await
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let mut request = self.client.request(method, format!("{}{path}", self.session));
        if !body.is_null() {
            request =
                request.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let answer = request.timeout(PATIENCE).send().await.unwrap().text().await.unwrap();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{path} {body}: {value}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its browser goes on when the driver is killed.
        for process in descendants(self.driver.pid().as_raw_nonzero().get().cast_unsigned()) {
            let process = Pid::from_raw(process.cast_signed());
            let _ = process.map(|process| kill_process(process, Signal::KILL));
        }
    }
}
