//! What a record has of the wire, and what the page shows of it.

use std::{collections::HashSet, process::Command};

use lab::{page, record::RunRecord};
use serde_json::{Value, json};

use super::page::run_script;

/// The largest page of a run.
const MOST_BYTES: usize = 300_000;

/// What the page shows of the wire for an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// All of it.
    pub(crate) text: String,
    /// The lines for a shell.
    pub(crate) lines: Vec<String>,
}

/// What the page shows of the wire, for each event of a record.
pub(crate) async fn shown(record: &Value) -> Vec<Shown> {
    let printed = run_script(&["wire.mjs"], record).await.unwrap();
    let parsed = printed.lines().map(|line| {
        let elements: Vec<[String; 3]> = serde_json::from_str(line).unwrap();
        let lines = elements.iter().filter(|[_, class, _]| class == "line");
        let lines = lines.map(|[_, _, text]| text.clone()).collect();
        let text = elements.into_iter().map(|[_, _, text]| text + "\n").collect();
        Shown { text, lines }
    });
    parsed.collect()
}

/// The number of the first event of a world that is this, of this actor.
pub(crate) fn position(record: &Value, world: &str, actor: &str, event: &str) -> usize {
    let events = record["events"].as_array().unwrap();
    let is_it = |other: &Value| {
        [("world", world), ("actor", actor), ("event", event)]
            .iter()
            .all(|(name, value)| other[*name] == *value)
    };
    events.iter().position(is_it).unwrap_or_else(|| panic!("{world}: {actor}: {event}"))
}

/// What the page shows for events of a world has all of these texts.
pub(super) async fn assert_shown(record: &Value, world: &str, expected: &[(&str, &str, &[&str])]) {
    let shown = shown(record).await;
    for (actor, event, texts) in expected {
        let shown = &shown[position(record, world, actor, event)];
        for text in *texts {
            assert!(shown.text.contains(text), "{actor}: {event}: {text:?} is in {}", shown.text);
        }
    }
}

/// Each script is in the record once, and the page of the record is small.
pub(super) fn assert_small(record: &Value) {
    let mut hashes = HashSet::new();
    for event in record["events"].as_array().unwrap() {
        for hash in event["wire"]["scripts"].as_object().into_iter().flat_map(|all| all.keys()) {
            assert!(hashes.insert(hash), "{hash} is there twice");
        }
    }
    let parsed: RunRecord = serde_json::from_value(record.clone()).unwrap();
    let page = page::file(Some(&parsed));
    assert!(page.len() < MOST_BYTES, "{} bytes", page.len());
}

/// A record of before has nothing of it, and opens.
#[tokio::test]
async fn record_without_the_wire_says_that_nothing_was_recorded() {
    let record = include_str!("token-33-34.json");
    let record: Value = serde_json::from_str(record).unwrap();
    let read: RunRecord = serde_json::from_value(record.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), record);
    for shown in shown(&record).await {
        assert_eq!(
            (&*shown.text, shown.lines.len()),
            ("Nothing was recorded for this event.\n", 0)
        );
    }
}

/// Words of a shell, with letters that it would read.
#[tokio::test]
async fn lines_are_quoted_for_a_shell() {
    let body = "it's $HOME `ls` \\ \"x\"\n!";
    let record = json!({"events": [{"event": "written", "actor": "client1", "wire": {"exchanges": [
        {"protocol": "http", "url": "printed", "method": "PUT", "headers": ["A: b c"], "body": body, "answer": null},
    ]}}]});
    let [shown] = &shown(&record).await[..] else { panic!("one event") };
    let line = shown.lines[0].replacen("curl", "printf '%s\\n'", 1);
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let expected = format!("-gi\n-X\nPUT\n-H\nA: b c\n--data-raw\n{body}\nprinted\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}
