//! The lock services that a sandbox can have beside Redis.

use serde_json::{Value, json};

use super::{Sandbox, count, fact, opening_with};
use crate::serve::Server;

#[tokio::test]
async fn lease_in_etcd_expires_while_its_client_is_paused() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &with_short_leases("etcd")).await;
    sandbox.rejects("lock service: jump the clock", "can't jump").await;
    check_expiry(sandbox).await;
}

#[tokio::test]
async fn session_in_zookeeper_expires_while_its_client_is_paused() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &with_short_leases("zookeeper")).await;
    sandbox.rejects("lock service: cut off the replica", "no replica").await;
    check_expiry(sandbox).await;
}

#[tokio::test]
async fn lease_in_a_table_expires_while_its_client_is_paused() {
    let server = Server::start();
    check_expiry(Sandbox::open(&server, &with_short_leases("postgres")).await).await;
}

fn with_short_leases(locks: &str) -> Value {
    opening_with("a", &json!({"locks": locks, "ttl_ms": 2_000}))
}

/// Lets a lease expire during a pause, and rejects the write that comes too late.
async fn check_expiry(sandbox: Sandbox<'_>) {
    sandbox.act(&["client 1: acquire", "client 1: read", "client 1: pause"]).await;
    sandbox.act(&["client 1: wait until its lease is over", "client 2: acquire"]).await;
    sandbox.act(&["client 2: read", "client 1: resume", "client 1: write"]).await;
    // etcd keeps nothing of a lock that is over.
    sandbox.act(&["client 2: release", "client 2: acquire"]).await;
    sandbox.act(&["lock service: stop", "lock service: restart"]).await;
    sandbox.act(&["lock service: stop", "lock service: restart empty"]).await;
    let (record, said) = sandbox.end().await;
    let events = record["events"].as_array().unwrap();
    let at = |event: &str| {
        events.iter().position(|other| other["event"] == event && other["actor"] != "client2")
    };
    assert!(at("lease-expired") > at("paused") && at("resumed") > at("lease-expired"));
    let restarts: Vec<_> = events.iter().filter(|event| event["event"] == "restarted").collect();
    assert!(restarts[0]["keys"].as_u64() > Some(0), "{restarts:?}");
    assert_eq!((restarts.len(), &restarts[1]["keys"]), (2, &json!(0)));
    assert_eq!(fact(&record, "stale_writes_rejected"), 1);
    assert_eq!(fact(&record, "holders_at_once"), 1, "{record}");
    assert!(said.ends_with("tasks: reject\n"), "{said}");
}

#[tokio::test]
async fn clock_of_the_database_that_jumps_makes_two_holders() {
    let server = Server::start();
    let settings = json!({"locks": "postgres", "store": "postgres-table"});
    let sandbox = Sandbox::open(&server, &opening_with("a", &settings)).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "lock service: jump the clock"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 1: write"]).await;
    let (record, said) = sandbox.end().await;
    assert_eq!(fact(&record, "stale_writes_rejected"), 1, "{record}");
    assert!(said.ends_with("tasks: holders, reject\n"), "{said}");
}

/// The other two nodes grant the lock meanwhile.
#[tokio::test]
async fn node_of_redlock_that_restarts_is_admitted_again() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &with_short_leases("redlock")).await;
    sandbox.rejects("lock service: promote the replica", "no replica").await;
    sandbox.act(&["lock service: stop", "client 1: acquire", "client 1: read"]).await;
    sandbox.rejects("lock service: stop", "node C does not run").await;
    sandbox.act(&["client 1: pause", "client 1: wait until its lease is over"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 1: resume"]).await;
    sandbox.act(&["client 1: write", "client 2: write", "lock service: restart empty"]).await;
    sandbox.until_recorded("admitted").await;
    sandbox.act(&["lock service: jump the clock", "lock service: restart"]).await;
    let (record, said) = sandbox.end().await;
    let named = |event: &str| count(&record, event);
    assert_eq!(["killed", "restarted", "admitting", "clock-jumped"].map(named), [1, 2, 2, 1]);
    assert_eq!(fact(&record, "stale_writes_rejected"), 1, "{record}");
    assert_eq!((fact(&record, "holders_at_once"), fact(&record, "token")), (&json!(1), &json!(34)));
    assert!(said.ends_with("tasks: reject\n"), "{said}");
}
