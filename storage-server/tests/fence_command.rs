//! `storage-server fence show` and `set`, beside a running server.

use crate::database::{Database, get, offer, on_empty_databases};

on_empty_databases! {
    fence_is_shown_and_set,
    lowering_a_fence_needs_force,
}

async fn fence_is_shown_and_set(database: Database) {
    let server = database.serve(&[]).await;
    let shown = database.run(&["fence", "show", "r"]).await.printed();
    assert_eq!(shown, "r: no fence\n");
    offer(&server, "PUT", "/v1/resources/r", 33, "hello").await;
    let shown = database.run(&["fence", "show", "r"]).await.printed();
    assert_eq!(shown, "r: token 33, no holder\na value of 5 bytes, version 1\n");

    let holder = "0123456789abcdef0123456789abcdef";
    let set =
        database.run(&["fence", "set", "r", "--token", "35", "--holder", holder]).await.printed();
    assert_eq!(set, "r: token 33, no holder\nnow: token 35, holder 01234567...\n");
    assert_eq!(
        offer(&server, "PUT", "/v1/resources/r", 34, "x").await.problem(),
        "412 stale-token"
    );
    let conflict = offer(&server, "PUT", "/v1/resources/r", 35, "x").await;
    assert_eq!(conflict.problem(), "409 holder-conflict");
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 36, "x").await.status, 200);

    // A resource that was never used.
    database.run(&["fence", "set", "new", "--token", "9"]).await.printed();
    assert_eq!(get(&server, "/v1/fences/new").await.json()["token"], 9);
    assert_eq!(
        offer(&server, "PUT", "/v1/resources/new", 8, "x").await.problem(),
        "412 stale-token"
    );
    assert_eq!(offer(&server, "PUT", "/v1/resources/new", 9, "x").await.status, 201);

    for arguments in [["r", "--token", "0"], ["a//b", "--token", "1"], ["r", "--token", "x"]] {
        let ran = database.run(&[&["fence", "set"], &arguments[..]].concat()).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
}

async fn lowering_a_fence_needs_force(database: Database) {
    let server = database.serve(&[]).await;
    offer(&server, "PUT", "/v1/resources/r", 35, "x").await;
    let lower = ["fence", "set", "r", "--token", "33"];
    let error = database.run(&lower).await.failed();
    assert!(error.contains("is at 35") && error.contains("--force"), "{error}");
    let another = ["fence", "set", "r", "--token", "35", "--holder", "another"];
    let error = database.run(&another).await.failed();
    assert!(error.contains("belongs to no holder") && error.contains("--force"), "{error}");
    assert_eq!(
        offer(&server, "PUT", "/v1/resources/r", 34, "x").await.problem(),
        "412 stale-token"
    );

    database.run(&[&lower[..], &["--force"]].concat()).await.printed();
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 34, "x").await.status, 200);
}
