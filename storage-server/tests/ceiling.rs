//! The ceiling for tokens: no token is so high that it locks all other clients out.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::{on_both_databases::on_all_stores, wire::Answer, world::World};

const HIGHEST: u64 = 999_999_999_999_999;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

on_all_stores!(&[] =>
    token_that_would_lock_all_others_out_is_rejected,
    counter_that_restarts_at_the_clock_passes,
);

async fn claim(world: &World, token: u64) -> Answer {
    world.ask("PUT", "/v1/fences/r", &[("Fencing-Token", &token.to_string())]).await
}

async fn fence(world: &World) -> serde_json::Value {
    world.ask("GET", "/v1/fences/r", &[]).await.json()["token"].clone()
}

fn clock_ms() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    clock.as_millis().try_into().unwrap()
}

async fn token_that_would_lock_all_others_out_is_rejected(world: World) {
    let token = [("Fencing-Token", "999999999999999")];
    for (method, path) in [
        ("PUT", "/v1/resources/r"),
        ("DELETE", "/v1/resources/r"),
        ("GET", "/v1/resources/r"),
        ("PUT", "/v1/fences/r"),
    ] {
        let answer = world.ask(method, path, &token).await;
        assert_eq!(answer.problem(), "403 token-too-high", "{method} {path}");
        let json = answer.json();
        assert_eq!((&json["resource"], &json["token"]), (&json!("r"), &json!(HIGHEST)));
        let tomorrow = clock_ms() + DAY_MS;
        let ceiling = json["ceiling"].as_u64().unwrap();
        assert!((tomorrow - 60_000..=tomorrow).contains(&ceiling), "{ceiling} at {tomorrow}");
    }
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404, "nothing has happened");
    assert_eq!(claim(&world, 1).await.status, 200, "others are not locked out");
}

async fn counter_that_restarts_at_the_clock_passes(world: World) {
    assert_eq!(claim(&world, 34).await.status, 200);
    let restarted = clock_ms();
    assert_eq!(claim(&world, restarted).await.status, 200);
    // A client whose clock is wrong by two days.
    assert_eq!(claim(&world, clock_ms() + 2 * DAY_MS).await.problem(), "403 token-too-high");
    assert_eq!(fence(&world).await, restarted);
}

#[tokio::test]
async fn steps_above_the_fence_pass_whatever_the_ceiling_is() {
    let world = World::on_sqlite(&["--token-ceiling", "5000"]).await;
    assert_eq!(claim(&world, 5001).await.problem(), "403 token-too-high");
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404);
    assert_eq!(claim(&world, 5000).await.status, 200, "at the ceiling");
    // A reissue passes.
    assert_eq!(claim(&world, 6000).await.status, 200);
    let above = claim(&world, 7001).await;
    assert_eq!(
        (above.problem().as_str(), &above.json()["ceiling"]),
        ("403 token-too-high", &json!(7000))
    );
    assert_eq!(claim(&world, 5999).await.problem(), "412 stale-token");
    assert_eq!(fence(&world).await, 6000);
}

#[tokio::test]
async fn without_a_ceiling_the_highest_token_is_stored() {
    let none = &["--token-ceiling", "none"];
    for world in [World::on_sqlite(none).await, World::on_postgres(none).await] {
        let token = [("Fencing-Token", "999999999999999")];
        assert_eq!(world.put("/v1/resources/r", &token, "x").await.status, 201);
        let value = world.ask("GET", "/v1/resources/r", &[]).await;
        assert_eq!(value.header("fencing-token"), Some("999999999999999"));
        assert_eq!(fence(&world).await, HIGHEST);
        assert_eq!(claim(&world, HIGHEST).await.status, 200, "there is no step above it");
    }
}

#[tokio::test]
async fn ceiling_holds_in_every_mode() {
    for mode in ["enforce", "report", "off"] {
        let world = World::on_sqlite(&["--enforcement", mode]).await;
        assert_eq!(claim(&world, HIGHEST).await.problem(), "403 token-too-high", "{mode}");
        let headers = [("Fencing-Token", "999999999999999")];
        let written = world.put("/v1/resources/r", &headers, "x").await;
        assert_eq!(written.problem(), "403 token-too-high", "{mode}");
        assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404, "{mode}");
        assert_eq!(world.ask("GET", "/v1/resources/r", &[]).await.status, 404, "{mode}");
        assert_eq!(claim(&world, 34).await.status, 200, "{mode}");
    }
}

/// The tokens of ZooKeeper's locks count the elections in their upper half.
#[tokio::test]
async fn ceiling_may_be_a_number_above_the_clock() {
    let zxid = (1000 << 32) + 7;
    let world = World::on_sqlite(&[]).await;
    assert_eq!(claim(&world, zxid).await.problem(), "403 token-too-high", "the control");
    let world = World::on_sqlite(&["--token-ceiling", "100000000000000"]).await;
    assert_eq!(claim(&world, zxid).await.status, 200);
}
