//! Chromium, used through its driver (WebDriver, <https://www.w3.org/TR/webdriver2/>).

mod everybody;

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::{Client, Method, header};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{installed, process::Process};

use super::{replay::descendants, serve::client};

/// Chromium may take this long to start, and a page to come to a state, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// A single request may take this long. So one that hangs is named.
const AT_ONCE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The name of an element's id in answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys that have no letter.
pub(super) const TAB: &str = "\u{e004}";
pub(super) const ENTER: &str = "\u{e007}";
pub(super) const SHIFT: &str = "\u{e008}";
pub(super) const SPACE: &str = " ";
pub(super) const END: &str = "\u{e010}";
pub(super) const HOME: &str = "\u{e011}";
pub(super) const LEFT: &str = "\u{e012}";
pub(super) const RIGHT: &str = "\u{e014}";

/// A browser with a profile of its own. It ends when this is dropped.
pub(super) struct Browser {
    driver: Process,
    session: String,
    client: Client,
    folder: TempDir,
}

impl Browser {
    pub(super) async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let chromium = installed("chromium", &[], "the package chromium").unwrap();
        let (driver, port) = start_driver(folder.path()).await;
        let url = format!("http://127.0.0.1:{port}/session");
        let (client, session) = (client(), url.clone());
        let mut browser = Self { driver, session, client, folder };
        // Its sandbox can't be used by root, and needs what containers often forbid.
        let options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let options = json!({"binary": chromium, "args": options});
        let capabilities = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let capabilities = json!({"capabilities": {"alwaysMatch": capabilities}});
        let started = browser.ask(Method::POST, "", capabilities, PATIENCE).await;
        browser.session = format!("{url}/{}", started["sessionId"].as_str().unwrap());
        let downloads = json!({"behavior": "allow", "downloadPath": browser.folder.path()});
        browser.command("Browser.setDownloadBehavior", downloads).await;
        browser
    }

    pub(super) async fn open(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    /// Opens a page from disk, at a fragment of its address.
    pub(super) async fn open_file(&self, name: &str, page: &str, fragment: &str) {
        let file = self.folder.path().join(name);
        fs::write(&file, page).unwrap();
        self.open(&format!("file://{}#{fragment}", file.display())).await;
    }

    pub(super) async fn reload(&self) {
        self.post("/refresh", json!({})).await;
    }

    /// Opens a tab, in which all that follows happens. Returns the one before.
    pub(super) async fn open_tab(&self) -> String {
        let before = self.ask(Method::GET, "/window", Value::Null, AT_ONCE).await;
        let new = self.post("/window/new", json!({"type": "tab"})).await;
        self.switch_to(new["handle"].as_str().unwrap()).await;
        before.as_str().unwrap().to_owned()
    }

    /// Goes to a tab, and looks at it: one that nobody sees draws nothing.
    pub(super) async fn switch_to(&self, tab: &str) {
        self.post("/window", json!({"handle": tab})).await;
        self.command("Page.bringToFront", json!({})).await;
    }

    /// Types into an element, which gets the focus. Into an input for files, that is a path.
    pub(super) async fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        let path = format!("/element/{}/value", element[ELEMENT].as_str().unwrap());
        self.post(&path, json!({"text": text})).await;
    }

    /// Presses keys, one after the other.
    pub(super) async fn press(&self, keys: &[&str]) {
        self.press_with(&[], keys).await;
    }

    /// Presses keys, one after the other, while others are held.
    pub(super) async fn press_with(&self, held: &[&str], keys: &[&str]) {
        let key = |kind: &str, key: &&str| json!({"type": kind, "value": key});
        let presses =
            keys.iter().flat_map(|pressed| [key("keyDown", pressed), key("keyUp", pressed)]);
        let down = held.iter().map(|held| key("keyDown", held));
        let up = held.iter().map(|held| key("keyUp", held));
        let actions: Vec<Value> = down.chain(presses).chain(up).collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.post("/actions", json!({"actions": [keyboard]})).await;
    }

    /// Holds Enter until it has repeated itself a few times.
    pub(super) async fn hold_enter(&self) {
        for (kind, repeats) in
            [("keyDown", false), ("keyDown", true), ("keyDown", true), ("keyUp", false)]
        {
            let key = json!({
                "type": kind, "key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13,
                "autoRepeat": repeats,
            });
            self.command("Input.dispatchKeyEvent", key).await;
        }
    }

    /// Runs a script in the page, and returns its result.
    pub(super) async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// Runs a script that calls `done` with its result.
    pub(super) async fn run_until_done(&self, script: &str) -> Value {
        let script = format!("const done = arguments[0]; {script}");
        self.post("/execute/async", json!({"script": script, "args": []})).await
    }

    /// The value of an expression in the page.
    pub(super) async fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression}")).await
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

    /// Waits until a file has been saved, and returns its text.
    pub(super) async fn saved(&self, name: &str) -> String {
        let file = self.folder.path().join(name);
        let saving = async {
            loop {
                match fs::read_to_string(&file) {
                    // A browser makes the file first, and fills another.
                    Ok(text) if !text.is_empty() => return text,
                    _ => tokio::time::sleep(POLL_INTERVAL).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, saving).await.expect(name)
    }

    /// Moves the mouse over an element, and presses its button, as a hand does.
    pub(super) async fn click(&self, selector: &str) {
        self.press_button(selector, 1).await;
    }

    pub(super) async fn double_click(&self, selector: &str) {
        self.press_button(selector, 2).await;
    }

    async fn press_button(&self, selector: &str, times: usize) {
        // The page may draw the element anew before the mouse is over it.
        let pressing = async { while !self.press_unless_stale(selector, times).await {} };
        tokio::time::timeout(PATIENCE, pressing).await.expect(selector);
    }

    /// Returns whether the element was still there, and was pressed.
    async fn press_unless_stale(&self, selector: &str, times: usize) -> bool {
        let element = self.element(selector).await;
        let script = "arguments[0].scrollIntoView({ block: 'center' })";
        let scroll = json!({"script": script, "args": [element]});
        let origin = json!({(ELEMENT): element[ELEMENT]});
        let over = json!({"type": "pointerMove", "origin": origin, "x": 0, "y": 0});
        let kinds = ["pointerDown", "pointerUp"].repeat(times);
        let presses = kinds.into_iter().map(|kind| json!({"type": kind, "button": 0}));
        let actions: Vec<Value> = [over].into_iter().chain(presses).collect();
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": actions});
        for (path, body) in [("/execute/sync", scroll), ("/actions", json!({"actions": [mouse]}))] {
            let answer = self.answer(Method::POST, path, body, AT_ONCE).await;
            match answer.get("error").and_then(Value::as_str) {
                None => {}
                Some("stale element reference") => return false,
                Some(_) => panic!("{selector}: {answer}"),
            }
        }
        true
    }

    /// Makes the page this wide and high.
    pub(super) async fn resize(&self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Has the visitor prefer something, such as `prefers-color-scheme: dark`.
    pub(super) async fn prefer(&self, feature: &str, value: &str) {
        let features = json!({"features": [{"name": feature, "value": value}]});
        self.command("Emulation.setEmulatedMedia", features).await;
        let is_preferred = self.value(&format!("matchMedia('({feature}: {value})').matches")).await;
        assert_eq!(is_preferred, true, "{feature}: {value}");
    }

    /// Writes a picture of an element of the page as a file.
    pub(super) async fn draw(&self, path: &Path, selector: &str) {
        self.command("Emulation.setScrollbarsHidden", json!({"hidden": true})).await;
        self.wait_for_frames().await;
        let place =
            format!("document.querySelector('{selector}').getBoundingClientRect().toJSON()");
        let mut clip = self.value(&place).await;
        clip["y"] =
            json!(clip["y"].as_f64().unwrap() + self.value("scrollY").await.as_f64().unwrap());
        clip["scale"] = json!(2);
        let options = json!({"format": "png", "clip": clip, "captureBeyondViewport": true});
        let drawn = self.command("Page.captureScreenshot", options).await;
        let data = BASE64_STANDARD.decode(drawn["data"].as_str().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }

    /// Waits until the page has drawn what follows from a change, such as of its size.
    async fn wait_for_frames(&self) {
        self.run_until_done("requestAnimationFrame(() => requestAnimationFrame(done))").await;
    }

    /// A command of the protocol of Chromium's tools.
    async fn command(&self, name: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": name, "params": parameters})).await
    }

    async fn element(&self, selector: &str) -> Value {
        self.post("/element", json!({"using": "css selector", "value": selector})).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body, AT_ONCE).await
    }

    async fn ask(&self, method: Method, path: &str, body: Value, patience: Duration) -> Value {
        let step =
            format!("{method} {path} {}", body.to_string().chars().take(300).collect::<String>());
        let answer = self.answer(method, path, body, patience).await;
        assert!(answer.get("error").is_none(), "{step}: {answer}");
        answer
    }

    /// The answer to a command, which may be an error.
    async fn answer(&self, method: Method, path: &str, body: Value, patience: Duration) -> Value {
        let step = format!("{method} {path}");
        let mut request = self.client.request(method, format!("{}{path}", self.session));
        if !body.is_null() {
            request =
                request.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let answering = async { request.timeout(patience).send().await?.text().await };
        let answer = answering.await.unwrap_or_else(|error| panic!("{step}: {error:?}"));
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        answer["value"].take()
    }
}

/// Starts a driver. Returns it with its port.
async fn start_driver(folder: &Path) -> (Process, String) {
    let driver = installed("chromedriver", &[], "the package chromium-driver").unwrap();
    let mut command = Command::new(driver);
    command.arg("--port=0").env("HOME", folder).env("TMPDIR", folder);
    let begun = Instant::now();
    loop {
        let mut driver = Process::spawn("chromedriver", &command, folder).unwrap();
        match port_of(&mut driver).await {
            Ok(port) => return (driver, port),
            // It takes a port that is free for IPv6, and needs it for IPv4, too.
            Err(error)
                if format!("{error:#}").contains("Address already in use")
                    && begun.elapsed() < PATIENCE => {}
            Err(error) => panic!("{error:#}"),
        }
    }
}

/// The port at which a driver says that it listens.
async fn port_of(driver: &mut Process) -> anyhow::Result<String> {
    loop {
        let line = driver.line(PATIENCE).await?;
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Ok(port.trim_end_matches('.').to_owned());
        }
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
