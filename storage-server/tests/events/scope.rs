//! Clients see decisions on resources that they may read.

use std::fs;

use serde_json::json;
use testbed::StorageServer;

use super::Watching;
use crate::access::{Guarded, ask};

async fn watching(server: &StorageServer, bearer: &str) -> Watching {
    let authorization = format!("Bearer {bearer}");
    let mut watching =
        Watching::with_headers(server, &[("Authorization", authorization.as_str())]).await;
    assert_eq!(watching.next().await.unwrap().name, "begin");
    watching
}

async fn claim(server: &StorageServer, bearer: &str, resource: &str) {
    let path = format!("/v1/fences/{resource}");
    let claimed = ask(server, bearer, "PUT", &path, Some("1")).await;
    assert_eq!(claimed.status, 200, "{claimed:?}");
}

#[tokio::test]
async fn only_decisions_in_the_scope_are_reported() {
    let guarded = Guarded::new();
    let claimer = guarded.identity("claimer", &["--prefix", "", "--allow", "claim"]).await;
    let all = guarded.identity("all", &["--prefix", "", "--allow", "read"]).await;
    let orders = ["--prefix", "orders/", "--prefix", "o2/", "--allow", "read,list"];
    let orders = guarded.identity("orders", &orders).await;
    let server = guarded.serve().await;

    let (mut of_all, mut of_orders) =
        (watching(&server, &all).await, watching(&server, &orders).await);
    let claimed = ["invoices/1", "orders", "orders/1", "Orders/2", "o2/3", "x/4"];
    for resource in claimed {
        claim(&server, &claimer, resource).await;
    }
    assert_eq!(of_all.resources(claimed.len()).await, claimed);
    assert_eq!(of_orders.resources(2).await, ["orders/1", "o2/3"]);

    for (bearer, problem) in [("", "401 unauthenticated"), (&claimer, "403 forbidden")] {
        let rejected = ask(&server, bearer, "GET", "/v1/events", None).await;
        assert_eq!(rejected.problem(), problem);
    }
}

#[tokio::test]
async fn stream_ends_when_who_may_do_what_has_changed() {
    let guarded = Guarded::new();
    let claimer = guarded.identity("claimer", &["--prefix", "", "--allow", "claim"]).await;
    let before = fs::read(guarded.auth_file()).unwrap();
    let reader = guarded.identity("reader", &["--prefix", "", "--allow", "read"]).await;
    let server = guarded.serve().await;
    let mut of_reader = watching(&server, &reader).await;
    claim(&server, &claimer, "a").await;
    assert_eq!(of_reader.resources(1).await, ["a"]);

    fs::write(guarded.auth_file(), before).unwrap();
    let end = of_reader.next().await.unwrap();
    assert_eq!((&*end.name, end.data), ("end", json!({"reason": "access-changed"})));
    assert_eq!(of_reader.next().await, None);
    let rejected = ask(&server, &reader, "GET", "/v1/events", None).await;
    assert_eq!(rejected.problem(), "401 unauthenticated");

    // Who is let in again watches as before, and an earlier change does not end that.
    let again = guarded.identity("again", &["--prefix", "", "--allow", "read"]).await;
    let is_known =
        async || Ok(ask(&server, &again, "GET", "/v1/fences/a", None).await.status == 200);
    testbed::wait::until_async(super::PATIENCE, is_known).await.unwrap();
    let mut of_again = watching(&server, &again).await;
    claim(&server, &claimer, "b").await;
    assert_eq!(of_again.resources(1).await, ["b"]);
}
