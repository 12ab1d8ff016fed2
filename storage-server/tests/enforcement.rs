//! The modes in which the server rejects nothing.

use crate::{
    logs::{is_logged, stop_and_read_log},
    on_both_databases::on_all_stores,
    world::World,
};

const OFF: &[&str] = &["--enforcement", "off"];

#[tokio::test]
async fn report_accepts_and_logs_what_it_would_reject() {
    let world = World::on_sqlite(&["--enforcement", "report"]).await;
    accepts_everything(&world).await;
    for part in
        ["accepted what would be rejected", "stale-token", "holder-conflict", "has no token"]
    {
        is_logged(&world.server, part).await;
    }
    let log = stop_and_read_log(world.server).await;
    assert!(!log.contains("a-holder-that-nobody-may-see"), "{log}");
}

on_all_stores!(super::OFF => off_accepts_and_says_nothing,);

async fn off_accepts_and_says_nothing(world: World) {
    accepts_everything(&world).await;
    let log = stop_and_read_log(world.server).await;
    assert!(!log.contains("accepted"), "{log}");
}

async fn accepts_everything(world: &World) {
    let put = async |token: &str, holder: &str| {
        let headers = [("Fencing-Token", token), ("Fencing-Holder", holder)];
        world.put("/v1/resources/r", &headers, token).await
    };
    let fence = async || world.ask("GET", "/v1/fences/r", &[]).await.json()["token"].clone();

    let without = world.put("/v1/resources/r", &[], "no token").await;
    assert_eq!((without.status, &without.json()["token"]), (201, &serde_json::Value::Null));
    let value = world.ask("GET", "/v1/resources/r", &[]).await;
    assert_eq!((value.text().as_str(), value.header("fencing-token")), ("no token", None));
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404);

    assert_eq!(put("34", "a-holder-that-nobody-may-see").await.status, 200);
    let stale = put("33", "late").await;
    assert_eq!(stale.status, 200);
    assert_eq!((&stale.json()["token"], &stale.json()["version"]), (&33.into(), &3.into()));
    assert_eq!(fence().await, 34, "the fence never falls");
    let value = world.ask("GET", "/v1/resources/r", &[]).await;
    assert_eq!(value.text(), "33");
    assert_eq!(value.header("fencing-token"), Some("33"), "the value keeps what was offered");

    assert_eq!(put("34", "another").await.status, 200, "a holder conflict passes");
    assert_eq!(put("35", "").await.status, 200);
    assert_eq!(fence().await, 35, "the fence rises");
    for method in ["GET", "DELETE"] {
        let late = world.ask(method, "/v1/resources/r", &[("Fencing-Token", "1")]).await;
        assert!(late.status < 300, "{method}: {late:?}");
    }
    assert_eq!(world.ask("PUT", "/v1/fences/r", &[("Fencing-Token", "1")]).await.status, 200);
    assert_eq!(world.ask("PUT", "/v1/fences/r", &[]).await.status, 200);
    assert_eq!(fence().await, 35);
    assert_eq!(put("0", "").await.problem(), "400 malformed-token", "malformed stays malformed");
}

/// A request that is rejected for another reason changes nothing, so nothing was accepted.
#[tokio::test]
async fn missing_token_is_logged_only_once_the_request_was_decided() {
    let arguments = ["--enforcement", "report", "--max-value-bytes", "3"];
    let world = World::on_sqlite(&arguments).await;
    assert_eq!(world.put("/v1/resources/large", &[], "four").await.status, 413);
    assert_eq!(world.put("/v1/resources/broken", &[("If-Match", "x")], "one").await.status, 400);
    assert_eq!(world.put("/v1/resources/small", &[], "one").await.status, 201);
    is_logged(&world.server, "has no token resource=small action=\"write\"").await;
    let log = world.server.log().unwrap();
    assert_eq!(log.matches("has no token").count(), 1, "{log}");
}
