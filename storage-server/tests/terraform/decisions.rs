//! When a lock is granted, and when an upload is accepted.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testbed::{StorageServer, wait::until_async};

use super::{PATIENCE, STATE, info, lock, lock_after_expiry, send, state, token, unlock, upload};
use crate::{database::get, logs::is_logged, on_both_databases::on_all_stores, world::World};

/// The resource that keeps its lock.
const LOCK: &str = "/v1/resources/terraform-lock/net";
const FENCE: &str = "/v1/fences/terraform/net";

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

/// Until when the lock is held, in milliseconds from now.
async fn held_ms(server: &StorageServer) -> i64 {
    let expires_at_ms = get(server, LOCK).await.json()["expires_at_ms"].as_u64().unwrap();
    expires_at_ms.cast_signed() - now_ms().cast_signed()
}

on_all_stores! {&[] =>
    run_locks_reads_uploads_and_unlocks,
    held_lock_is_rejected_with_its_holder,
    late_upload_under_an_expired_lock_is_rejected,
    expired_lock_that_nobody_took_still_uploads,
    uploads_renew_the_lock,
    lock_that_was_forced_open_uploads_nothing,
    state_is_deleted_under_the_lock_or_while_nobody_holds_it,
    unlock_that_is_sent_as_a_delete_keeps_the_state,
    tokens_are_above_those_of_other_clients,
}

async fn run_locks_reads_uploads_and_unlocks(world: World) {
    let server = &world.server;
    assert_eq!(get(server, STATE).await.problem(), "404 not-found");
    let locked = lock(server, "", "a").await;
    let day_half = 12 * 60 * 60 * 1000;
    assert_eq!(locked.json(), json!({"resource": "terraform/net", "token": 1, "ttl_ms": day_half}));
    // A client without an answer sends the same again.
    assert_eq!(token(&lock(server, "", "a").await), 1);
    assert_eq!(upload(server, "a", &state(1)).await.status, 201);
    assert_eq!(upload(server, "a", &state(2)).await.status, 200);
    let read = get(server, STATE).await;
    assert_eq!((read.status, read.text()), (200, state(2)));
    assert_eq!(read.header("content-type"), Some("application/json"));
    assert_eq!(get(server, "/v1/resources/terraform/net").await.text(), state(2));
    for _ in 0..2 {
        assert_eq!(unlock(server, "a").await.status, 200);
    }
    assert_eq!(upload(server, "a", &state(3)).await.problem(), "409 state-lock-lost");

    // The next lock claims before its client reads.
    assert_eq!(token(&lock(server, "", "b").await), 2);
    let fence = get(server, FENCE).await.json();
    assert_eq!((&fence["token"], &fence["holder"]), (&json!(2), &json!("...")));
    assert_eq!(get(server, STATE).await.text(), state(2));
}

async fn held_lock_is_rejected_with_its_holder(world: World) {
    let server = &world.server;
    let id = "c9b1a6e2-5d0f-4a3c-9a7e-2f1b8d4c6e50";
    token(&lock(server, "?ttl=1h", id).await);
    let rejected = lock(server, "", "b").await;
    assert_eq!(rejected.problem(), "423 state-locked");
    let problem = rejected.json();
    let holder: Value = serde_json::from_str(&info(id)).unwrap();
    for member in ["Operation", "Who", "Version", "Created"] {
        assert_eq!(problem[member], holder[member], "{member}");
    }
    // A client that knows the whole ID may upload.
    assert_eq!(problem["ID"], "c9b1a6e2...");
    let deleted = send(server, "DELETE", STATE, "").await;
    assert_eq!(deleted.problem(), "423 state-locked");
    for answer in [rejected, deleted] {
        assert!(!answer.text().contains(id), "{answer:?}");
    }
    // Terraform can't parse an empty time, and so on.
    assert!(problem.get("Path").is_none() && problem.get("Info").is_none());
    let detail = problem["detail"].as_str().unwrap();
    let expected =
        "the lock is held by \"alice@web-3\" for \"OperationTypeApply\", and expires in ";
    assert!(detail.starts_with(expected), "{detail}");
    assert_eq!(unlock(server, "b").await.problem(), "409 state-lock-lost");
    assert_eq!(upload(server, "b", &state(1)).await.problem(), "409 state-lock-lost");
    assert_eq!(upload(server, id, &state(1)).await.status, 201);
}

async fn late_upload_under_an_expired_lock_is_rejected(world: World) {
    let server = &world.server;
    assert_eq!(token(&lock(server, "?ttl=1s", "a").await), 1);
    assert_eq!(token(&lock_after_expiry(server, "b").await), 2);
    let late = upload(server, "a", &state(1)).await;
    assert_eq!(late.problem(), "409 state-lock-lost");
    let detail = late.json()["detail"].to_string();
    assert!(detail.contains("don't push errored.tfstate: run 'terraform plan'"), "{detail}");
    assert_eq!(get(server, STATE).await.status, 404);
    assert_eq!(unlock(server, "a").await.problem(), "409 state-lock-lost");
    assert_eq!(lock(server, "", "a").await.problem(), "423 state-locked");
    assert_eq!(upload(server, "b", &state(2)).await.status, 201);
    assert_eq!(get(server, STATE).await.text(), state(2));
}

/// Nobody has read the state since, so the upload undoes nothing.
async fn expired_lock_that_nobody_took_still_uploads(world: World) {
    let server = &world.server;
    token(&lock(server, "?ttl=1s", "a").await);
    until_async(PATIENCE, async || Ok(held_ms(server).await < 0)).await.unwrap();
    let path = format!("{STATE}?ID=a&ttl=1h");
    assert_eq!(send(server, "POST", &path, &state(1)).await.status, 201);
    assert_eq!(lock(server, "", "b").await.problem(), "423 state-locked");
}

async fn uploads_renew_the_lock(world: World) {
    let server = &world.server;
    let hour = 60 * 60 * 1000;
    let held_until = async || get(server, LOCK).await.json()["expires_at_ms"].as_u64().unwrap();
    token(&lock(server, "?ttl=1h", "a").await);
    assert!((1..=hour).contains(&held_ms(server).await));
    let first = held_until().await;
    let is_later = async || {
        upload(server, "a", &state(1)).await;
        Ok(held_until().await > first)
    };
    until_async(PATIENCE, is_later).await.unwrap();
    assert!(held_ms(server).await <= hour, "the lock keeps its ttl");
    send(server, "POST", &format!("{STATE}?ttl=2h&ID=a"), &state(2)).await;
    assert!(held_ms(server).await > hour, "the address has another ttl");
    token(&lock(server, "?ttl=3h", "a").await);
    assert!(held_ms(server).await > 2 * hour, "the holder renews without an upload");
}

async fn lock_that_was_forced_open_uploads_nothing(world: World) {
    let server = &world.server;
    token(&lock(server, "", "a").await);
    upload(server, "a", &state(1)).await;
    // As OpenTofu does, if the address has the ID: another lock stays.
    let by_id = |id| format!("{STATE}?ID={id}");
    assert_eq!(send(server, "UNLOCK", &by_id("b"), "").await.problem(), "409 state-lock-lost");
    assert_eq!(send(server, "UNLOCK", &by_id("a"), "").await.status, 200);
    assert_eq!(upload(server, "a", &state(2)).await.problem(), "409 state-lock-lost");

    // As Terraform does, which sends no ID.
    token(&lock(server, "", "b").await);
    assert_eq!(send(server, "UNLOCK", STATE, "").await.status, 200);
    assert_eq!(upload(server, "b", &state(2)).await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, STATE).await.text(), state(1));
    is_logged(server, "a lock was released without its ID").await;
}

async fn state_is_deleted_under_the_lock_or_while_nobody_holds_it(world: World) {
    let server = &world.server;
    token(&lock(server, "", "a").await);
    upload(server, "a", &state(1)).await;
    assert_eq!(send(server, "DELETE", STATE, "").await.problem(), "423 state-locked");
    let by_id = |id| format!("{STATE}?ID={id}");
    assert_eq!(send(server, "DELETE", &by_id("b"), "").await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, STATE).await.text(), state(1));
    assert_eq!(send(server, "DELETE", &by_id("a"), "").await.status, 200);
    assert_eq!(get(server, STATE).await.status, 404);

    // A delete without a lock has a token of its own: the client that paused before it comes too late.
    token(&lock(server, "?ttl=1s", "a").await);
    upload(server, "a", &state(2)).await;
    let deleted = async || Ok(send(server, "DELETE", STATE, "").await.status == 200);
    until_async(PATIENCE, deleted).await.unwrap();
    assert_eq!(upload(server, "a", &state(3)).await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, STATE).await.status, 404);
}

/// As Terraform unlocks with `TF_HTTP_UNLOCK_METHOD=DELETE`. An expired lock would not prevent the delete.
async fn unlock_that_is_sent_as_a_delete_keeps_the_state(world: World) {
    let server = &world.server;
    token(&lock(server, "?ttl=1s", "a").await);
    upload(server, "a", &state(1)).await;
    until_async(PATIENCE, async || Ok(held_ms(server).await < 0)).await.unwrap();
    for path in [STATE, "/v1/terraform/net?ID=a"] {
        let rejected = send(server, "DELETE", path, &info("a")).await;
        assert_eq!(rejected.problem(), "400 malformed-request", "{path}");
        let detail = rejected.json()["detail"].to_string();
        assert!(detail.contains("TF_HTTP_UNLOCK_METHOD"), "{detail}");
    }
    // As `force-unlock` sends it.
    let digest_of_nothing = [("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")];
    let rejected = world.ask("DELETE", STATE, &digest_of_nothing).await;
    assert_eq!(rejected.problem(), "400 malformed-request");
    assert_eq!(get(server, STATE).await.text(), state(1));
    // The control: a delete.
    assert_eq!(send(server, "DELETE", STATE, "").await.status, 200);
}

async fn tokens_are_above_those_of_other_clients(world: World) {
    let server = &world.server;
    assert_eq!(token(&lock(server, "", "a").await), 1);
    let claim = [("Fencing-Token", "34")];
    assert_eq!(world.ask("PUT", FENCE, &claim).await.status, 200);
    assert_eq!(upload(server, "a", &state(1)).await.problem(), "409 state-lock-lost");
    // What the client has read is void. A renewal that is rejected does not prolong the lock.
    let before = get(server, LOCK).await.text();
    assert_eq!(lock(server, "", "a").await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, LOCK).await.text(), before);
    unlock(server, "a").await;
    assert_eq!(token(&lock(server, "", "b").await), 35);
}
