//! The page in Chromium, used as by a hand: its sandbox.

use serde_json::Value;

use super::{Server, sandbox::printed};
use crate::browser::Browser;

const START: &str = "#open-sandbox";
/// A stored run of 33 and 34.
const RECORD_FILE: &str = "src/picture/tests/token-33-34.json";
const RECORD: &str = include_str!("../../src/picture/tests/token-33-34.json");

impl Browser {
    /// Presses the control of this name as soon as it can do something, and waits for the answer.
    async fn act(&self, action: &str) {
        let control = control(action);
        self.wait_until(&is_enabled(action)).await;
        self.click(&control).await;
        self.wait_until_answered().await;
    }

    async fn wait_until_answered(&self) {
        self.wait_until("document.getElementById('answered').textContent === ''").await;
    }

    /// Waits until an element contains a text.
    async fn wait_for(&self, id: &str, text: &str) {
        let content = format!("document.getElementById('{id}').textContent");
        self.wait_until(&format!("{content}.includes({})", Value::from(text))).await;
    }
}

/// The selector of a control, by its name.
fn control(action: &str) -> String {
    format!("[aria-label=\"{action}\"]")
}

fn is_enabled(action: &str) -> String {
    format!("document.querySelector('{}:enabled')", control(action))
}

/// Opens the page with its token, in English.
async fn opened(server: &Server) -> Browser {
    let browser = Browser::start().await;
    browser.open(&format!("{}/#token={}&lang=en", server.url, server.token)).await;
    browser.wait_until("document.querySelector('#open-sandbox:enabled')").await;
    browser
}

/// Client 1 is paused past its lease, and meanwhile client 2 writes. Client 1 wakes up.
async fn let_client_1_oversleep(browser: &Browser) {
    for action in ["client 1: acquire", "client 1: read", "client 1: pause"] {
        browser.act(action).await;
    }
    browser.wait_for("answers", "client 1: stopped. believes that it holds the lock: WRONG").await;
    for action in ["client 2: acquire", "client 2: read", "client 2: write", "client 1: resume"] {
        browser.act(action).await;
    }
}

#[tokio::test]
async fn visitor_loses_an_update_and_then_is_rejected_because_the_fence_is_on() {
    let server = Server::start();
    let browser = opened(&server).await;
    browser.run("document.getElementById('ttl').value = '5000'").await;
    browser.click(START).await;
    let_client_1_oversleep(&browser).await;
    let believes = "client 1: believes that it holds the lock: WRONG. If it wrote now:";
    browser.wait_for("answers", &format!("{believes} update lost")).await;
    browser.act("client 1: write").await;
    browser.wait_for("worlds", "updates lost: 1").await;
    browser.wait_for("tasks", "Lose one update: done").await;
    browser.wait_for("tasks", "Now try it with the fence on: open").await;

    browser.click("#fence").await;
    browser.click(START).await;
    browser.wait_for("worlds", "FENCE ON").await;
    browser.run("document.getElementById('table').open = true").await;
    let_client_1_oversleep(&browser).await;
    browser.wait_for("answers", &format!("{believes} rejected")).await;
    browser.act("client 1: write").await;
    browser.wait_for("rows", "rejects 33: it has seen 34").await;
    browser.wait_for("worlds", "nothing lost").await;
    browser.wait_for("tasks", "Now try it with the fence on: done").await;

    // A click on the event shows what really went over the wire, and a line that does the same.
    browser.click("#rows tr:first-child").await;
    browser.wait_for("wire", "Nothing that was recorded.").await;
    let rejected = "[...document.querySelectorAll('#rows tr')].find((row) => row.textContent.includes('33: rejected'))";
    let rejected = browser.value(&format!("{rejected}.dataset.index")).await;
    browser.click(&format!("#rows [data-index=\"{}\"]", rejected.as_str().unwrap())).await;
    browser.wait_for("wire", "PUT http://127.0.0.1:").await;
    browser.wait_for("wire", "412 Precondition Failed").await;
    let lines = "document.querySelectorAll('#wire .line')";
    assert_eq!(browser.value(&format!("{lines}.length")).await, 1);
    let line = browser.value(&format!("{lines}[0].textContent")).await;
    let rejected = printed(line.as_str().unwrap()).await;
    assert!(rejected.contains(" 412 ") && rejected.contains("stale-token"), "{line}: {rejected}");

    // When it has ended, it is a record: nothing can be done in it, and it can be saved.
    browser.act("sandbox: end").await;
    browser.wait_for("worlds", "stale writes refused: 1").await;
    browser.wait_until("!document.querySelector('#actors button:enabled')").await;
    browser.wait_until("document.querySelector('#save:not([hidden])')").await;
}

#[tokio::test]
async fn run_is_forked_before_the_pause_and_the_first_difference_is_marked() {
    let server = Server::start();
    let browser = opened(&server).await;
    let record: Value = serde_json::from_str(RECORD).unwrap();
    browser.type_into("#open", &format!("{}/{RECORD_FILE}", env!("CARGO_MANIFEST_DIR"))).await;
    browser.wait_for("worlds", "WITHOUT the fence").await;
    let is_checked = |event: &Value| event["event"] == "lease-checked";
    let checked = record["events"].as_array().unwrap().iter().position(is_checked).unwrap();
    browser.run(&format!("document.getElementById('time').value = {checked}")).await;
    browser.run("document.getElementById('time').dispatchEvent(new Event('input'))").await;
    browser.wait_for("words", "client 1: checks its lease").await;
    browser.click("#fork").await;

    // The sandbox has come there by the same steps. Client 1 writes, and is not paused.
    browser.act("client 1: write").await;
    browser.wait_for("worlds", "“1: client 1”").await;
    browser.wait_for("worlds", "first difference").await;
    let worlds = browser.run("return document.getElementById('worlds').textContent").await;
    let worlds = worlds.as_str().unwrap();
    let [original, fork] =
        ["WITHOUT the fence", "FENCE OFF"].map(|title| worlds.find(title).unwrap());
    assert!(original < fork, "{worlds}");
    assert_eq!(worlds.matches("first difference").count(), 2, "in each of the two: {worlds}");
    browser.wait_until("document.querySelectorAll('#worlds .panel').length === 2").await;
}
