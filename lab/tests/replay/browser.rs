//! Saved pages in a real browser, which opens the file from disk.

use lab::{page, record::RunRecord};
use serde_json::{Value, json};

use crate::browser::{Browser, END, ENTER, HOME, LEFT, RIGHT, SPACE};

/// A stored run of 33 and 34.
const RECORD: &str = include_str!("token-33-34.json");
/// The number of the chosen event, from 0.
const CHOSEN: &str = "Number(document.getElementById('time').value)";
const FILE: &str = "run.html";
const IS_TABLE_FILLED: &str = "document.querySelectorAll('#rows tr').length > 20";

pub(super) fn saved(record: Value) -> String {
    let record: RunRecord = serde_json::from_value(record).unwrap();
    page::file(Some(&record))
}

fn record() -> Value {
    serde_json::from_str(RECORD).unwrap()
}

/// The number of the first event that is this, from 1, as in an address.
pub(super) fn number(record: &Value, event: &str) -> usize {
    let events = record["events"].as_array().unwrap();
    1 + events
        .iter()
        .position(|other| other["event"] == event && other["actor"] == "storage")
        .unwrap()
}

impl Browser {
    async fn text(&self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById('{id}').textContent")).await;
        text.as_str().unwrap().to_owned()
    }

    /// The event that is chosen after these keys, with the focus on an element, or on nothing.
    async fn chosen_after(&self, focused: &str, keys: &[&str]) -> u64 {
        self.run(&format!(
            "document.activeElement.blur(); document.querySelector('{focused}').focus()"
        ))
        .await;
        self.press(keys).await;
        self.value(CHOSEN).await.as_u64().unwrap()
    }

    /// Checks that nothing was reported of the page, such as a script that its policy does not allow.
    async fn assert_silent(&self) {
        assert_eq!(self.log().await, [""; 0]);
    }
}

#[tokio::test]
async fn saved_file_leads_to_its_event_and_everybody_can_use_it() {
    let record = record();
    let (page, count) = (saved(record.clone()), record["events"].as_array().unwrap().len() as u64);
    let browser = Browser::start().await;

    // 1. Its address leads to an event, in either language.
    let rejected = number(&record, "rejected");
    browser.open_file(FILE, &page, &format!("event={rejected}&lang=zh")).await;
    assert_eq!(browser.text("words").await, "存储：拒绝 33：已见过 34");
    assert_eq!(browser.value("document.documentElement.lang").await, "zh");
    let lost = number(&record, "accepted-stale-write");
    browser.open_file("again.html", &page, &format!("event={lost}&lang=en")).await;
    let words = "storage: accepts the write with token 33: newer data is lost";
    assert_eq!(browser.text("words").await, words);
    assert!(browser.text("beat").await.contains("nobody gets an error"));
    assert!(browser.text("world").await.starts_with("World 1 of 2 · WITHOUT the fence"));
    assert_eq!(browser.text("decisive").await, "Next decisive moment (2 of 2)");
    let believes = "client 1: believes that it holds the lock: WRONG";
    let pictures = browser.value("document.querySelector('.picture').ariaLabel").await;
    assert!(pictures.as_str().unwrap().contains(believes), "{pictures}");
    browser.assert_silent().await;

    // At the end, each world is at its own end, also one that lasted longer than the last.
    let mut longer = record.clone();
    for event in &mut longer["events"].as_array_mut().unwrap()[lost - 2..] {
        event["at_ms"] = (event["at_ms"].as_u64().unwrap() + 100).into();
    }
    browser.open_file("longer.html", &saved(longer), &format!("event={count}&lang=en")).await;
    let picture = browser.value("document.querySelector('.picture').ariaLabel").await;
    assert!(!picture.as_str().unwrap().contains(believes), "{picture}");
    browser.open_file("again.html", &page, &format!("event={lost}&lang=en")).await;

    // 2. Keys choose another, wherever the focus is. What has it keeps its own keys.
    let chosen = lost as u64 - 1;
    assert_eq!(browser.chosen_after("body", &[LEFT, LEFT, RIGHT]).await, chosen - 1);
    assert_eq!(browser.chosen_after("body", &[END]).await, count - 1);
    assert_eq!(browser.chosen_after("body", &[HOME, RIGHT]).await, 1);
    assert_eq!(browser.chosen_after("#next", &[ENTER, SPACE, RIGHT]).await, 4);
    assert_eq!(browser.chosen_after("#time", &[RIGHT, END, LEFT]).await, count - 2);
    assert_eq!(browser.chosen_after("#speed", &["d", RIGHT, HOME]).await, count - 2);
    assert_eq!(browser.chosen_after("#next", &["d"]).await, chosen);
    assert_eq!(browser.value("document.getElementById('speed').selectedIndex").await, 0);
    browser.press(&["D"]).await;
    assert_eq!(browser.value(CHOSEN).await, rejected - 1);
    for (focused, label) in [("body", "Stop"), ("#time", "Play"), ("#play", "Stop")] {
        browser.chosen_after(focused, &[SPACE]).await;
        assert_eq!(browser.value("document.getElementById('play').ariaLabel").await, label);
    }
    browser.press(&[ENTER]).await;
    browser.chosen_after("#table summary", &[ENTER]).await;
    browser.wait_until(IS_TABLE_FILLED).await;

    // 3. Another address leads to its event, and is kept up to date from there.
    browser.run("location.hash = 'event=1'").await;
    browser.wait_until(&format!("{CHOSEN} === 0")).await;
    browser.press(&["D", "D"]).await;
    // A reload leads to the event again.
    browser.wait_until(&format!("location.hash.includes('event={rejected}')")).await;
    browser.reload().await;
    assert!(browser.text("words").await.contains("rejects 33: it has seen 34"));

    // 4. All is within reach, nothing moves by itself, and no rule of axe-core is broken.
    browser.chosen_after("#table summary", &[ENTER]).await;
    browser.wait_until(IS_TABLE_FILLED).await;
    browser.assert_all_is_reached_by_keyboard().await;
    browser.assert_fits().await;
    browser.assert_accessible().await;
    browser.prefer("prefers-reduced-motion", "reduce").await;
    assert_eq!(browser.value("document.getAnimations().length").await, 0);
    browser.resize(1280, 900).await;
    browser.click("#language").await;
    browser.assert_accessible().await;

    // 5. The control: axe-core notices if a name is missing, or words can hardly be seen.
    browser.run("document.getElementById('time').removeAttribute('aria-label')").await;
    browser.run("document.getElementById('time').removeAttribute('title')").await;
    browser.run("document.getElementById('words').style.color = '#999'").await;
    let broken = browser.violations().await;
    assert!(broken.iter().any(|rule| rule.starts_with("label: ")), "{broken:?}");
    assert!(broken.iter().any(|rule| rule.starts_with("color-contrast: ")), "{broken:?}");
}

#[tokio::test]
async fn value_that_looks_like_markup_is_shown_as_text_and_a_changed_script_does_not_run() {
    const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";
    let mut record = record();
    let accepted = number(&record, "accepted-write");
    for event in record["events"].as_array_mut().unwrap() {
        if event["value"] == "by client 2" {
            event["value"] = json!(HOSTILE);
        }
    }
    let page = saved(record);
    let browser = Browser::start().await;
    browser.open_file(FILE, &page, &format!("event={accepted}&lang=en")).await;
    assert!(browser.text("worlds").await.contains(HOSTILE), "it is shown");
    assert_eq!(browser.value("document.querySelectorAll('img').length").await, 0);
    browser.assert_silent().await;

    // The negative control: without its own script, the page shows nothing, and the browser says why.
    let changed = page.replace("const COLORS = 5;", "const COLORS = 6;");
    browser.open_file("changed.html", &changed, "event=1").await;
    assert_eq!(browser.text("words").await, "");
    let log = browser.log().await.concat();
    assert!(log.contains("Content Security Policy"), "{log}");
}

/// Measures frames. Notes how many elements are made anew, and how often a drawing is changed. In each
/// frame, `act` is called with its number, until it returns true.
const MEASURE: &str = r#"
    const time = document.getElementById("time");
    const [frames, measured] = [[], { made: 0, drawings: 0 }];
    const observer = new MutationObserver((changes) => {
        for (const { target, addedNodes } of changes) {
            measured.made += addedNodes.length;
            measured.drawings += (target.closest?.(".drawn") ?? target.parentElement?.closest(".drawn")) ? 1 : 0;
        }
    });
    observer.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
    let last = performance.now();
    const frame = (now) => {
        frames.push(now - last);
        last = now;
        if (!act(frames.length)) return requestAnimationFrame(frame);
        observer.disconnect();
        frames.sort((one, other) => one - other);
        const at = (share) => Math.round(frames[Math.floor((frames.length - 1) * share)]);
        done({ ...measured, frames: frames.length, median: at(0.5), most: at(0.95), longest: at(1) });
    };
    requestAnimationFrame(frame);
"#;

#[tokio::test]
async fn ten_thousand_events_are_a_few_elements_and_a_step_changes_fewer() {
    const EVENTS: usize = 10_000;
    const STEPS: u64 = 100;
    let mut record = record();
    let events = record["events"].as_array().unwrap().clone();
    let repeated = (0..EVENTS).map(|number| {
        let mut event = events[number % events.len()].clone();
        event["at_ms"] = json!(number);
        event
    });
    record["events"] = repeated.collect();
    let browser = Browser::start().await;
    browser.open_file(FILE, &saved(record), &format!("event={EVENTS}&lang=en")).await;
    let position = browser.value("document.getElementById('time').ariaValueText").await;
    assert!(position.as_str().unwrap().starts_with(&format!("event {EVENTS} of {EVENTS}, at ")));
    let count = browser.value("document.querySelectorAll('#worlds *').length").await;
    assert!((50..500).contains(&count.as_u64().unwrap()), "{count} elements");
    let opened = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd";
    println!("opened after {} ms", browser.value(opened).await);

    // A step makes no more than the fields of its event and what was said of it, and draws nothing anew.
    // That also holds with the table open, and while the run plays.
    let scrub = format!(
        "const act = (frame) => {{ time.value = frame * {} ; time.dispatchEvent(new Event('input')); \
         return frame === {STEPS}; }};",
        EVENTS / STEPS as usize - 1,
    );
    let play = "document.getElementById('explain').checked = false; \
        document.getElementById('speed').value = '4'; const start = Number(time.value); \
        document.getElementById('play').click(); const act = () => Number(time.value) >= start + 10;";
    for (what, act, steps) in [
        ("scrubbed", &*scrub, STEPS),
        ("scrubbed with the table", &*scrub, STEPS),
        ("played", play, 10),
    ] {
        let measured = browser.run_until_done(&format!("{MEASURE} {act}")).await;
        println!("{what}: {measured}");
        let made = measured["made"].as_u64().unwrap();
        assert!((steps..40 * steps).contains(&made), "{what}: {measured}");
        assert_eq!(measured["drawings"], 0, "{what}: {measured}");
        browser.run("document.getElementById('table').open = true").await;
        browser.wait_until("document.querySelector('#rows tr[aria-current]')").await;
    }

    // The control: to draw it all again is noticed.
    let redraw = "const act = (frame) => { if (frame === 1) document.getElementById('language').click(); \
        return frame === 10; };";
    let measured = browser.run_until_done(&format!("{MEASURE} {redraw}")).await;
    println!("drawn anew: {measured}");
    assert!(measured["made"].as_u64().unwrap() > 40, "{measured}");
}
