//! The lab's own command.

mod locks;
mod sale;
mod tokens;

use std::process::{Command, Output};

use serde_json::{Value, json};

async fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The record of a run that has shown what the scenario claims.
async fn replayed(scenario: &str) -> Value {
    let output = lab(&["replay", scenario, "--json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["scenario"], scenario);
    assert_eq!(record["holds"], true);
    record
}

/// How a scenario ended in its worlds.
async fn outcome(scenario: &str) -> Value {
    replayed(scenario).await["outcome"].take()
}

/// Value, token, stale writes accepted and refused, updates lost; first without the fence, then with.
async fn ends(scenario: &str) -> [(String, u64, [u64; 3]); 2] {
    let record = replayed(scenario).await;
    ["unfenced", "fenced"].map(|world| {
        let end = &record["outcome"][world];
        let count = |member: &str| end[member].as_u64().unwrap();
        let counts = ["stale_writes_accepted", "stale_writes_refused", "updates_lost"].map(count);
        (end["value"].as_str().unwrap().to_owned(), count("token"), counts)
    })
}

#[tokio::test]
async fn a_stock_is_oversold_without_the_fence_and_not_with_it() {
    let [unfenced, fenced] = ends("oversell").await;
    assert_eq!(unfenced, ("5".to_owned(), 33, [1, 0, 1]), "of 10, 13 were sold, and 5 are left");
    assert_eq!(fenced, ("2".to_owned(), 34, [0, 1, 0]), "of 10, 8 were sold");
}

#[tokio::test]
async fn an_update_is_lost_without_fenced_reads_and_not_with_them() {
    let [unclaimed, claimed] = ends("claim-before-read").await;
    assert_eq!(unclaimed, ("2".to_owned(), 34, [0, 0, 1]), "both sold, and nothing was refused");
    assert_eq!(claimed, ("2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn a_table_of_postgres_refuses_33_after_34_by_itself() {
    let [unprotected, protected] = ends("embedded-postgres").await;
    assert_eq!(unprotected, ("by client 1".to_owned(), 33, [1, 0, 1]));
    assert_eq!(protected, ("by client 2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn a_write_that_the_network_delivers_late_is_refused() {
    let [unfenced, fenced] = ends("delayed-request").await;
    assert_eq!(unfenced, ("by client 1".to_owned(), 33, [1, 0, 1]));
    assert_eq!(fenced, ("by client 2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn what_never_heard_of_34_accepts_33_and_loses_nothing() {
    let [before, after] = ends("never-saw-34").await;
    assert_eq!(before, ("by client 2".to_owned(), 34, [0, 0, 0]));
    assert_eq!(after, ("by client 2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn token_33_is_refused_after_34_and_overwrites_without_the_fence() {
    let record = replayed("token-33-34").await;
    let outcome = json!({
        "fenced": {
            "value": "by client 2", "token": 34,
            "stale_writes_accepted": 0, "stale_writes_refused": 1, "updates_lost": 0,
        },
        "unfenced": {
            "value": "by client 1", "token": 33,
            "stale_writes_accepted": 1, "stale_writes_refused": 0, "updates_lost": 1,
        },
    });
    assert_eq!(record["outcome"], outcome);

    // What happened with the fence, in the order of time.
    let events = record["events"].as_array().unwrap();
    assert!(events.iter().is_sorted_by_key(|event| event["at_ms"].as_u64().unwrap()));
    let fenced = events.iter().filter(|event| event["world"] == "fenced").map(|event| {
        let text = |member: &str| event[member].as_str().unwrap().to_owned();
        let token = event["token"].as_u64().map_or(String::new(), |token| format!(" {token}"));
        format!("{}: {}{token}", text("actor"), text("event"))
    });
    insta::assert_snapshot!(fenced.collect::<Vec<_>>().join("\n"), @"
    redis: counter-preset 32
    client1: acquired 33
    client1: read 33
    storage: accepted-claim 33
    client1: lease-checked 33
    client1: paused
    redis: lease-expired 33
    client2: acquired 34
    client2: read 34
    storage: accepted-claim 34
    client2: lease-checked 34
    client2: written 34
    storage: accepted-write 34
    client2: released
    client1: resumed
    client1: refused 33
    storage: refused 33
    client1: lease-lost
    ");
}

#[tokio::test]
async fn timeline_tells_the_story_in_words() {
    let output = lab(&["replay"]).await;
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "WITHOUT the fence",
        "WITH the fence",
        "client 1 lock (Redis) client 2 storage",
        "WITHOUT the fence value: by client 1; token: 33; stale writes accepted: 1; \
         stale writes refused: 0; updates lost: 1",
        "WITH the fence value: by client 2; token: 34; stale writes accepted: 0; \
         stale writes refused: 1; updates lost: 0",
        "Shown:",
    ] {
        assert!(words.contains(part), "{part:?} is in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours where no terminal is");
}

#[tokio::test]
async fn scenarios_are_listed_and_an_unknown_one_is_2() {
    let list = lab(&["replay", "--list"]).await;
    let list = String::from_utf8(list.stdout).unwrap();
    for scenario in lab::scenario::ALL {
        assert!(list.contains(scenario.name()), "{}", scenario.name());
    }
    let unknown = lab(&["replay", "none"]).await;
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("lab replay --list"));
}
