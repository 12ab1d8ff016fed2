//! `lab replay`: that every scenario shows its claim, and that its output is readable.

#[cfg(target_os = "linux")]
mod browser;
mod client;
mod etcd;
mod locks;
mod nodes;
mod output;
mod page;
mod patroni;
mod sale;
#[cfg(target_os = "linux")]
mod screenshots;
mod tokens;
pub(super) mod wire;
mod zookeeper;

#[cfg(target_os = "linux")]
pub(super) use self::output::descendants;
pub(super) use self::page::explained;
use std::process::{Command, Output};

use anstream::adapter::strip_str;
use lab::{
    record::RunRecord,
    scenario,
    timeline::{self, Timeline},
};
use serde_json::{Value, json};

/// The worlds without the fence and with it.
const TWINS: [&str; 2] = ["unfenced", "fenced"];
/// Leases last long enough for a busy machine.
const REPLAY: [&str; 3] = ["replay", "--ttl-factor", "4"];
/// The width of output that no terminal shows.
const WIDTH: usize = 80;

pub(super) async fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The output of a run that showed what the scenario claims.
async fn printed(arguments: &[&str]) -> String {
    let output = lab(arguments).await;
    let (printed, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{printed}{error}");
    printed.into_owned()
}

/// The record of a run that showed what the scenario claims. Its timeline is not too wide, and its page
/// has words for all of it.
async fn replayed(name: &str) -> Value {
    let printed: Value =
        serde_json::from_str(&printed(&[&REPLAY[..], &[name, "--json"]].concat()).await).unwrap();
    let record: RunRecord = serde_json::from_value(printed.clone()).unwrap();
    assert_eq!(serde_json::to_value(&record).unwrap(), printed, "no event loses a detail");
    let scenario = scenario::find(name).unwrap();
    let mut timeline = Timeline::new(scenario.tracks, scenario.worlds, WIDTH);
    let text: String = record.events.iter().map(|event| timeline.event(event)).collect();
    assert_fits(
        &strip_str(&(text + &timeline::summary(&record, scenario.worlds, WIDTH))).to_string(),
    );
    if let Err(problems) = page::explained(&printed).await {
        panic!("the page of {name}: {problems}");
    }
    printed
}

#[track_caller]
fn assert_fits(text: &str) {
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
}

/// How a scenario ended in its worlds.
async fn outcome(scenario: &str) -> Value {
    replayed(scenario).await["outcome"].take()
}

/// Value, token, stale writes accepted and rejected, updates lost, in each of these worlds.
async fn ends(scenario: &str, worlds: [&str; 2]) -> [(String, u64, [u64; 3]); 2] {
    let outcome = outcome(scenario).await;
    worlds.map(|world| facts(&outcome[world]))
}

fn facts(end: &Value) -> (String, u64, [u64; 3]) {
    let count = |member: &str| end[member].as_u64().unwrap();
    let counts = ["stale_writes_accepted", "stale_writes_rejected", "updates_lost"].map(count);
    (end["value"].as_str().unwrap().to_owned(), count("token"), counts)
}

#[tokio::test]
async fn stock_is_oversold_without_the_fence_and_not_with_it() {
    let [unfenced, fenced] = ends("oversell", TWINS).await;
    assert_eq!(unfenced, ("5".to_owned(), 33, [1, 0, 1]), "of 10, 13 were sold, and 5 are left");
    assert_eq!(fenced, ("2".to_owned(), 34, [0, 1, 0]), "of 10, 8 were sold");
}

#[tokio::test]
async fn update_is_lost_without_fenced_reads_and_not_with_them() {
    let record = replayed("claim-before-read").await;
    let [unclaimed, claimed] =
        ["writes-only", "fenced-reads"].map(|world| facts(&record["outcome"][world]));
    let losses: Vec<_> = events(&record, "overwrites_unseen").collect();
    assert_eq!(losses, [("writes-only", "client2", &json!(1))]);
    assert_eq!(unclaimed, ("2".to_owned(), 34, [0, 0, 1]), "both sold, and nothing was rejected");
    assert_eq!(claimed, ("2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn table_of_postgres_rejects_33_after_34_by_itself() {
    let [unprotected, protected] = ends("embedded-postgres", TWINS).await;
    assert_eq!(unprotected, ("by client 1".to_owned(), 33, [1, 0, 1]));
    assert_eq!(protected, ("by client 2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn lock_beside_its_data_needs_the_fence_too() {
    let record = replayed("sql-expired").await;
    let [unprotected, protected] = TWINS.map(|world| facts(&record["outcome"][world]));
    assert_eq!(unprotected, ("by client 1".to_owned(), 33, [1, 0, 1]));
    assert_eq!(protected, ("by client 2".to_owned(), 34, [0, 1, 0]));
    let update = "update shelf set value = $2 where resource = $1\n$1 = invoice-7\n$2 = by client";
    let rejected = ["fence.present", update, "ERROR ZF001: ", "psql 'postgres://"];
    let acquire = ["select * from fenced_lock.acquire('invoice-7', ", "token: 33"];
    let expected: [(&str, &str, &[&str]); 3] = [
        ("client1", "acquired", &acquire),
        ("client1", "read", &["select value from shelf", "value: empty\nSELECT 1"]),
        ("client1", "rejected", &rejected),
    ];
    wire::assert_shown(&record, "fenced", &expected).await;
    wire::assert_small(&record);
}

#[tokio::test]
async fn write_that_the_network_delivers_late_is_rejected() {
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
    client1: rejected 33
    storage: rejected 33
    client1: lease-lost
    ");
}

#[tokio::test]
async fn storage_that_never_saw_34_accepts_33_and_loses_nothing() {
    let [before, after] = ends("never-saw-34", ["before-claim", "after-claim"]).await;
    assert_eq!(before, ("by client 2".to_owned(), 34, [0, 0, 0]));
    assert_eq!(after, ("by client 2".to_owned(), 34, [0, 1, 0]));
}

#[tokio::test]
async fn record_of_a_run_is_printed_as_json() {
    let record: Value =
        serde_json::from_str(&printed(&[&REPLAY[..], &["get-then-del", "--json"]].concat()).await)
            .unwrap();
    assert_eq!((&record["scenario"], &record["holds"]), (&json!("get-then-del"), &json!(true)));
    assert_eq!(record["outcome"]["get-then-del"], locks::deleted());
    assert_eq!(record["outcome"]["one-script"], locks::kept());
    let marked: Vec<_> = events(&record, "beside").collect();
    assert_eq!(marked, [("get-then-del", "client3", &json!("client 2"))]);
}

/// The worlds and actors of the events that have a detail, and the detail.
fn events<'a>(
    record: &'a Value,
    detail: &str,
) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
    record["events"].as_array().unwrap().iter().filter_map(move |event| {
        let [world, actor] = ["world", "actor"].map(|member| event[member].as_str().unwrap());
        event.get(detail).map(|detail| (world, actor, detail))
    })
}
