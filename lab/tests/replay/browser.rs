//! Saved pages in a real browser: Chromium opens the file from disk, and prints its elements.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use lab::{page, record::RunRecord};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A stored run of 33 and 34.
const RECORD: &str = include_str!("../../src/picture/tests/token-33-34.json");
/// Chromium may take this long on a busy machine.
const AT_MOST: &str = "300";

/// The elements of a page that Chromium has opened at a fragment of its address. A script or a style
/// that the page's policy does not allow is reported in what the browser logs.
async fn opened(page: String, fragment: &str) -> String {
    let fragment = fragment.to_owned();
    let opening = move || {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("run.html");
        fs::write(&file, page).unwrap();
        let Output { status, stdout, stderr } = chromium(&file, &fragment, folder.path());
        let (elements, log) =
            (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{status}: {log}");
        assert!(!log.contains("CONSOLE"), "nothing is reported: {log}");
        elements
    };
    tokio::task::spawn_blocking(opening).await.unwrap()
}

/// Runs Chromium with a profile of its own. It ends by itself, at the latest with its time.
fn chromium(file: &Path, fragment: &str, folder: &Path) -> Output {
    Command::new("timeout")
        .args([AT_MOST, "chromium", "--headless", "--disable-gpu", "--disable-dev-shm-usage"])
        // Its sandbox can't be used by root, and needs what containers often forbid.
        .args(["--no-sandbox", "--no-first-run", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}#{fragment}", file.display()))
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .output()
        .expect("timeout and chromium run; the packages coreutils and chromium have them")
}

fn saved(record: Value) -> String {
    let record: RunRecord = serde_json::from_value(record).unwrap();
    page::file(Some(&record))
}

/// The text of an element, by its id.
fn text<'a>(elements: &'a str, id: &str) -> &'a str {
    let (_, rest) = elements
        .split_once(&format!(" id=\"{id}\""))
        .unwrap_or_else(|| panic!("{id} in {elements}"));
    rest.split_once('>').unwrap().1.split('<').next().unwrap()
}

fn record() -> Value {
    serde_json::from_str(RECORD).unwrap()
}

/// The number of the first event that is this, from 1, as in an address.
fn number(record: &Value, event: &str) -> usize {
    let events = record["events"].as_array().unwrap();
    1 + events
        .iter()
        .position(|other| other["event"] == event && other["actor"] == "storage")
        .unwrap()
}

#[tokio::test]
async fn permalink_of_a_saved_file_leads_to_its_event_in_english_and_in_chinese() {
    let record = record();
    let page = saved(record.clone());
    let lost = number(&record, "accepted-stale-write");
    let elements = opened(page.clone(), &format!("event={lost}&lang=en")).await;
    assert_eq!(
        text(&elements, "words"),
        "storage: accepts the write with token 33: newer data is lost"
    );
    assert!(text(&elements, "beat").contains("nobody gets an error"), "{elements}");
    assert!(elements.contains("client 1: believes that it holds the lock: WRONG"), "{elements}");

    let rejected = number(&record, "refused");
    let elements = opened(page, &format!("event={rejected}&lang=zh")).await;
    assert_eq!(text(&elements, "words"), "存储：拒绝 33：已见过 34");
    assert!(elements.contains(r#"<html lang="zh">"#));
}

#[tokio::test]
async fn value_that_looks_like_markup_is_shown_as_text() {
    const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";
    let mut record = record();
    let accepted = number(&record, "accepted-write");
    for event in record["events"].as_array_mut().unwrap() {
        if event["value"] == "by client 2" {
            event["value"] = json!(HOSTILE);
        }
    }
    let elements = opened(saved(record), &format!("event={accepted}&lang=en")).await;
    assert!(elements.contains("&lt;/script&gt;&lt;img src=x"), "it is shown: {elements}");
    assert!(!elements.contains("<img"), "{elements}");
}

/// What is at one place is drawn once. So a page stays smooth, however much has happened.
#[tokio::test]
async fn ten_thousand_events_open_at_the_last_and_are_drawn_as_fewer_marks() {
    const EVENTS: usize = 10_000;
    let mut record = record();
    let events = record["events"].as_array().unwrap().clone();
    let repeated = (0..EVENTS).map(|number| {
        let mut event = events[number % events.len()].clone();
        event["at_ms"] = json!(number);
        event
    });
    record["events"] = repeated.collect();
    let elements = opened(saved(record), &format!("event={EVENTS}&lang=en")).await;
    assert!(elements.contains(&format!("event {EVENTS} of {EVENTS}, at ")));
    let marks = elements.matches(r#"class="mark "#).count();
    assert!((100..EVENTS / 2).contains(&marks), "{marks} marks");
}

/// The negative control: without its own script, the page shows nothing, and the browser says why.
#[tokio::test]
#[should_panic(expected = "nothing is reported")]
async fn script_that_was_changed_does_not_run() {
    let page = saved(record()).replace("const COLORS = 5;", "const COLORS = 6;");
    opened(page, "event=1").await;
}
