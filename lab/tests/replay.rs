//! The lab's own command.

mod locks;
mod nodes;
mod picture;
mod sale;
mod tokens;

use std::{
    cell::RefCell,
    process::{Command, Output},
    rc::Rc,
};

use anstream::adapter::strip_str;
use lab::{
    record::{Recorder, RunRecord},
    scenario,
    timeline::{self, Timeline},
};
use serde_json::{Value, json};

/// The worlds without the fence and with it.
const TWINS: [&str; 2] = ["unfenced", "fenced"];
/// As wide as a terminal is at least.
const WIDTH: usize = 80;

async fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// What a run printed that has shown what the scenario claims.
async fn printed(arguments: &[&str]) -> String {
    let output = lab(arguments).await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The record of a run as JSON.
async fn replayed(name: &str) -> Value {
    serde_json::to_value(run(name).await).unwrap()
}

/// A run that has shown what the scenario claims, and whose timeline is not too wide, nor its
/// picture unreadable.
async fn run(name: &str) -> RunRecord {
    let scenario = scenario::named(name).unwrap();
    let text = Rc::new(RefCell::new(String::new()));
    let (shown, mut timeline) = (text.clone(), Timeline::new(scenario.lanes()));
    let show = move |event: &_| *shown.borrow_mut() += &timeline.event(event);
    let mut recorder = Recorder::start(scenario.worlds()[0], show);
    let (outcome, holds) = scenario::play(scenario, &mut recorder).await.unwrap();
    let record =
        RunRecord { scenario: scenario.name(), holds, events: recorder.into_events(), outcome };
    *text.borrow_mut() += &timeline::summary(&record);
    assert!(holds, "{}", text.borrow());
    assert_fits(&strip_str(&text.borrow()).to_string());
    picture::assert_readable(&picture::drawn(&record));
    record
}

#[track_caller]
fn assert_fits(text: &str) {
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
}

/// How a scenario ended in its worlds.
async fn outcome(scenario: &str) -> Value {
    replayed(scenario).await["outcome"].take()
}

/// Value, token, stale writes accepted and refused, updates lost, in each of these worlds.
async fn ends(scenario: &str, worlds: [&str; 2]) -> [(String, u64, [u64; 3]); 2] {
    let outcome = outcome(scenario).await;
    worlds.map(|world| facts(&outcome[world]))
}

fn facts(end: &Value) -> (String, u64, [u64; 3]) {
    let count = |member: &str| end[member].as_u64().unwrap();
    let counts = ["stale_writes_accepted", "stale_writes_refused", "updates_lost"].map(count);
    (end["value"].as_str().unwrap().to_owned(), count("token"), counts)
}

#[tokio::test]
async fn a_stock_is_oversold_without_the_fence_and_not_with_it() {
    let [unfenced, fenced] = ends("oversell", TWINS).await;
    assert_eq!(unfenced, ("5".to_owned(), 33, [1, 0, 1]), "of 10, 13 were sold, and 5 are left");
    assert_eq!(fenced, ("2".to_owned(), 34, [0, 1, 0]), "of 10, 8 were sold");
}

#[tokio::test]
async fn an_update_is_lost_without_fenced_reads_and_not_with_them() {
    let record = replayed("claim-before-read").await;
    let [unclaimed, claimed] =
        ["writes-only", "fenced-reads"].map(|world| facts(&record["outcome"][world]));
    let losses: Vec<_> = events(&record, "overwrites_unseen").collect();
    assert_eq!(losses, [("writes-only", "client2", &json!(1))]);
    assert_eq!(unclaimed, ("2".to_owned(), 34, [0, 0, 1]), "both sold, and nothing was refused");
    assert_eq!(claimed, ("2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn a_table_of_postgres_refuses_33_after_34_by_itself() {
    let [unprotected, protected] = ends("embedded-postgres", TWINS).await;
    assert_eq!(unprotected, ("by client 1".to_owned(), 33, [1, 0, 1]));
    assert_eq!(protected, ("by client 2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn a_write_that_the_network_delivers_late_is_refused() {
    let record = replayed("delayed-request").await;
    assert_eq!(facts(&record["outcome"]["unfenced"]), ("by client 1".to_owned(), 33, [1, 0, 1]));
    assert_eq!(facts(&record["outcome"]["fenced"]), ("by client 2".to_owned(), 34, [0, 1, 0]));

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
    network: request-held 33
    redis: lease-expired 33
    client2: acquired 34
    client2: read 34
    storage: accepted-claim 34
    client2: lease-checked 34
    client2: written 34
    storage: accepted-write 34
    client2: released
    network: request-delivered 33
    client1: refused 33
    storage: refused 33
    client1: lease-lost
    ");
}

#[tokio::test]
async fn what_never_heard_of_34_accepts_33_and_loses_nothing() {
    let [before, after] = ends("never-saw-34", ["before-claim", "after-claim"]).await;
    assert_eq!(before, ("by client 2".to_owned(), 34, [0, 0, 0]));
    assert_eq!(after, ("by client 2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn timeline_tells_the_story_in_words() {
    let text = printed(&["replay"]).await;
    assert_fits(&text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "WITHOUT the fence: the storage accepts every write",
        "WITH the fence: the storage checks each write's token",
        "client 1 lock (Redis) client 2 storage",
        "WITHOUT the fence value: by client 1; token: 33; stale writes accepted: 1; \
         stale writes refused: 0; updates lost: 1",
        "WITH the fence value: by client 2; token: 34; stale writes accepted: 0; \
         stale writes refused: 1; updates lost: 0",
        "Shown:",
        "`lab replay --list` lists them",
    ] {
        assert!(words.contains(part), "{part:?} is in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours where no terminal is");
}

#[tokio::test]
async fn record_of_a_run_is_printed_as_json() {
    let record: Value =
        serde_json::from_str(&printed(&["replay", "get-then-del", "--json"]).await).unwrap();
    assert_eq!((&record["scenario"], &record["holds"]), (&json!("get-then-del"), &json!(true)));
    assert_eq!(record["outcome"]["get-then-del"], locks::deleted());
    assert_eq!(record["outcome"]["one-script"], locks::kept());
    let marked: Vec<_> = events(&record, "beside").collect();
    assert_eq!(marked, [("get-then-del", "client3", &json!("client 2"))]);
}

/// The worlds and actors of the events that have a detail, and what that is.
fn events<'a>(
    record: &'a Value,
    detail: &str,
) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
    record["events"].as_array().unwrap().iter().filter_map(move |event| {
        let [world, actor] = ["world", "actor"].map(|member| event[member].as_str().unwrap());
        event.get(detail).map(|detail| (world, actor, detail))
    })
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
