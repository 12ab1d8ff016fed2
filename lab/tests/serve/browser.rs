//! The page in Chromium, used as by a hand: a live run, and its sandbox.

use serde_json::Value;

use super::{
    SCENARIO, Server,
    sandbox::{printed, processes},
};
use crate::browser::{Browser, ENTER};

const START: &str = "#open-sandbox";
const CHOSEN: &str = "Number(document.getElementById('time').value)";
const LAST: &str = "Number(document.getElementById('time').max)";
const WORDS: &str = "document.getElementById('words').textContent";
/// How often the page has asked for this.
const ASKED: &str = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith";
/// Loses the answers to actions, until they are found again.
const LOSE_ANSWERS: &str = "
    const { fetch } = window;
    const lost = new Promise(() => {});
    window.fetch = (path, options) => (path.endsWith('/actions') ? lost : fetch(path, options));
    window.findAnswers = () => (window.fetch = fetch);
";
/// Shows the event again, and holds the change of address that follows until `changeAddress` is
/// called. It is false if the page is about to change its address already.
const HOLD_CHANGE_OF_ADDRESS: &str = "(() => {
    const { setTimeout } = window;
    window.setTimeout = (change) => (window.changeAddress = change);
    document.getElementById('time').dispatchEvent(new Event('input'));
    window.setTimeout = setTimeout;
    return window.changeAddress;
})()";
/// A stored run of 33 and 34.
const RECORD_FILE: &str = "tests/replay/token-33-34.json";
const RECORD: &str = include_str!("../replay/token-33-34.json");

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
    browser.open(&server.address()).await;
    browser.wait_until("document.querySelector('#live:not([hidden])')").await;
    browser
}

/// Client 1 is paused past its lease, and meanwhile client 2 writes. Client 1 wakes up.
async fn let_client_1_oversleep(browser: &Browser) {
    for action in ["client 1: acquire", "client 1: read", "client 1: pause"] {
        browser.act(action).await;
    }
    browser.wait_for("answers", "client 1: stopped; believes that it holds the lock: WRONG").await;
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
    browser.assert_everybody_can_use_it().await;
    browser.act("client 1: write").await;
    browser.wait_for("worlds", "updates lost: 1").await;
    browser.wait_for("tasks", "Lose one update: done").await;
    browser.wait_for("tasks", "Now try it with the fence on: not done yet").await;

    // An action without an answer holds up no other sandbox.
    browser.run(LOSE_ANSWERS).await;
    browser.click(&control("client 2: read")).await;
    browser.wait_for("answered", "client 2: read…").await;
    browser.run("findAnswers()").await;
    browser.click("#preparation summary").await;
    browser.click("#fence").await;
    browser.click(START).await;
    browser.wait_for("worlds", "FENCE ON").await;
    browser.wait_until("document.getElementById('answered').textContent === ''").await;
    browser.run("document.getElementById('table').open = true").await;
    let_client_1_oversleep(&browser).await;
    browser.wait_for("answers", &format!("{believes} rejected")).await;
    browser.act("client 1: write").await;
    browser.wait_for("rows", "rejects 33: it has seen 34").await;
    browser.wait_for("worlds", "nothing lost").await;
    browser.wait_for("tasks", "Now try it with the fence on: done").await;

    // A click on the event shows what really went over the wire, and a line that does the same.
    browser.click("#rows tr:first-child").await;
    browser.wait_for("wire", "Nothing was recorded for this event.").await;
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

    // An action that is requested while another one is under way is carried out after it.
    let both = ["lock service: restart", "client 3: start"]
        .map(|action| format!("document.querySelector('{}').click();", control(action)));
    browser.run(&both.concat()).await;
    browser.wait_for("rows", "is killed, and restarts").await;
    browser.wait_for("rows", "client 3").await;

    // When it has ended, it is a record: nothing can be done in it, and it can be saved.
    browser.act("sandbox: end").await;
    browser.wait_for("worlds", "stale writes rejected: 1").await;
    browser.wait_until("!document.querySelector('#actors button:enabled')").await;
    browser.wait_until("document.querySelector('#save:not([hidden])')").await;
}

#[tokio::test]
async fn run_of_33_and_34_is_watched_live_and_saved_and_opens_from_disk() {
    let server = Server::start();
    let browser = opened(&server).await;

    // 1. Everybody can use the page before anything runs.
    browser.assert_everybody_can_use_it().await;

    // 2. It starts by keyboard, and is followed as it happens.
    browser.type_into("#scenario", "a late write").await;
    browser.type_into("#start", ENTER).await;
    browser.wait_for("worlds", "client 1").await;
    let first = browser.value(CHOSEN).await;
    browser.assert_accessible().await;
    browser.click("#language").await;
    browser.assert_accessible().await;
    browser.click("#language").await;
    for ending in ["updates lost: 1", "nothing lost", "stale writes rejected: 1"] {
        browser.wait_for("worlds", ending).await;
    }
    browser.wait_until(&format!("{CHOSEN} > {first} && {CHOSEN} === {LAST}")).await;
    assert_eq!(browser.value("document.getElementById('message').hidden").await, true);

    // 3. A press on a panel goes to a moment, whose record is shown, and a reload leads there again.
    browser.click(".picture").await;
    browser.wait_until(&format!("{CHOSEN} < {LAST}")).await;
    browser.wait_for("fields", "at_ms").await;
    browser.wait_until(&format!("location.hash.includes(`event=${{{CHOSEN} + 1}}`)")).await;
    let chosen = [CHOSEN, WORDS].map(|what| browser.value(what));
    let chosen = futures_util::future::join_all(chosen).await;
    browser.reload().await;
    browser.wait_for("worlds", "stale writes rejected: 1").await;
    browser.wait_until(&format!("{CHOSEN} === {} && {CHOSEN} < {LAST}", chosen[0])).await;

    // 4. When the lab has ended, it is still saved as a file, which opens from disk.
    drop(server);
    browser.click("#save").await;
    let page = browser.saved(&format!("{SCENARIO}.html")).await;

    // 5. Another record takes its place, also in the address.
    browser.type_into("#open", &format!("{}/{RECORD_FILE}", env!("CARGO_MANIFEST_DIR"))).await;
    browser.wait_until("!location.hash.includes('run=')").await;
    browser.wait_for("worlds", "nothing lost").await;
    let fragment = format!("event={}&lang=en", chosen[0].as_u64().unwrap() + 1);
    browser.open_file("again.html", &page, &fragment).await;
    assert_eq!(browser.value(WORDS).await, chosen[1]);
    assert_eq!(browser.value("document.querySelectorAll('.panel').length").await, 2);
    let log = browser.log().await.join("\n");
    assert!(!log.contains("Content Security Policy") && !log.contains("TrustedHTML"), "{log}");
}

#[tokio::test]
async fn two_tabs_share_a_sandbox_that_outlives_a_reload_and_not_its_server() {
    let mut server = Server::start();
    let browser = opened(&server).await;
    browser.run("document.getElementById('ttl').value = '60000'").await;
    browser.double_click(START).await;
    browser.act("client 1: acquire").await;
    // While nothing happens, the lease is counted down.
    let worlds = "document.getElementById('worlds').textContent";
    browser.wait_until(&format!("/client 1, for another 5[0-8]\\./.test({worlds})")).await;
    // One sandbox, although it was a double click.
    let started = processes(server.process.id(), 5).await;
    assert_eq!(browser.value(&format!("{ASKED}('/sandboxes')).length")).await, 1);
    browser.wait_until(&is_enabled("client 1: write")).await;
    browser.double_click(&control("client 1: write")).await;
    browser.wait_until_answered().await;
    assert_eq!(browser.value(&format!("{ASKED}('/actions')).length")).await, 2);

    // Another tab has the same controls.
    browser.wait_until("location.hash.includes('run=')").await;
    let address = browser.value("location.href").await;
    let first = browser.open_tab().await;
    browser.open(&format!("{}&token={}", address.as_str().unwrap(), server.token)).await;
    browser.wait_until(&is_enabled("client 3: start")).await;
    browser.act("client 1: write").await;
    browser.wait_until(&format!("!{}", is_enabled("client 1: acquire"))).await;
    browser.act("client 1: release").await;

    // The first has noticed, and still does after a reload.
    browser.switch_to(&first).await;
    browser.wait_until(&is_enabled("client 1: acquire")).await;
    browser.reload().await;
    // By the keyboard, whose focus stays at a control that can do something.
    browser.wait_until(&is_enabled("client 1: acquire")).await;
    for action in ["client 1: acquire", "client 2: kill"] {
        browser.type_into(&control(action), ENTER).await;
        browser.wait_until_answered().await;
        browser.wait_until(&format!("!{}", is_enabled(action))).await;
        browser.wait_until("document.activeElement.matches('#actors button:enabled')").await;
    }
    browser.wait_for("answers", "client 2: killed").await;
    browser.wait_for("worlds", "“2: client 1”").await;

    // When its server is killed, the page says so. What was shown stays.
    server.kill();
    server.wait_until_idle(&started).await;
    browser.wait_for("message", "The lab can't be reached").await;
    server.start_again();
    browser.wait_for("message", "Open the address that `lab serve` printed last").await;
    browser.wait_until("!document.querySelector('#actors button:enabled')").await;
    browser.wait_for("worlds", "“2: client 1”").await;
    browser.click(START).await;
    browser.wait_for("message", "This page has no valid token").await;

    // With the new address, the same tab goes on, although the page was about to write the old one.
    browser.wait_until(HOLD_CHANGE_OF_ADDRESS).await;
    let address = Value::from(server.address());
    browser.run(&format!("location.href = {address}; window.changeAddress()")).await;
    browser.wait_until("!location.hash.includes('token')").await;
    browser.run(&format!("document.querySelector('{START}').focus()")).await;
    browser.hold_enter().await;
    browser.act("client 1: acquire").await;
    assert_eq!(browser.value(&format!("{ASKED}('/sandboxes')).length")).await, 1);
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
    let [original, fork] = ["As it was: WITHOUT the fence", "Your fork: FENCE OFF"]
        .map(|title| worlds.find(title).unwrap());
    assert!(original < fork, "{worlds}");
    assert_eq!(worlds.matches("first difference").count(), 2, "in each of the two: {worlds}");
    browser.wait_until("document.querySelectorAll('#worlds .panel').length === 2").await;

    // A reload leads to both again.
    browser.reload().await;
    browser.wait_for("worlds", "first difference").await;
    browser.wait_until("document.querySelectorAll('#worlds .panel').length === 2").await;
}
