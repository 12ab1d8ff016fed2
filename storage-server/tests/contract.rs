//! Every line of the HTTP contract, on both databases.

use serde_json::json;

use crate::{on_both_databases::on_all_stores, readiness::until_ready, world::World};

const HOLDER: &str = "0123456789abcdef0123456789abcdef";

on_all_stores!(&[] =>
    first_write_creates_and_the_next_replaces,
    written_value_is_read_back_with_its_token_holder_and_type,
    late_write_with_old_token_is_rejected,
    token_that_is_days_below_the_fence_hints_at_another_counter,
    same_token_from_another_holder_conflicts,
    fenced_read_claims_before_it_reads,
    fenced_read_without_a_value_claims_all_the_same,
    delete_keeps_the_fence_and_counts_as_a_version,
    claim_advances_the_fence_and_leaves_the_value,
    conditional_writes_depend_on_the_version,
    tag_that_never_matches_is_named_as_such,
    head_reads_and_never_claims,
    known_version_is_not_sent_again,
    holders_are_shown_whole_only_to_themselves,
    writes_without_a_token_are_rejected,
    server_is_alive_and_ready,
);

async fn first_write_creates_and_the_next_replaces(world: World) {
    let headers = [("Fencing-Token", "34"), ("Fencing-Holder", HOLDER)];
    let created = world.put("/v1/resources/invoice-7", &headers, "one").await;
    assert_eq!(created.status, 201);
    let accepted = |version| json!({"resource": "invoice-7", "token": 34, "holder": HOLDER, "version": version});
    assert_eq!(created.json(), accepted(1));
    assert_eq!(created.header("content-type"), Some("application/json"));
    assert_eq!(created.header("cache-control"), Some("no-store"));

    let replaced = world.put("/v1/resources/invoice-7", &headers, "two").await;
    assert_eq!(replaced.status, 200);
    assert_eq!(replaced.json(), accepted(2));
}

async fn written_value_is_read_back_with_its_token_holder_and_type(world: World) {
    let bytes: Vec<u8> = (0..=255).collect();
    let headers = [("Fencing-Token", "1700000000000"), ("Content-Type", "image/x-odd; a=\"b\"")];
    let url = world.server.url();
    let written = crate::wire::request(url, "PUT", "/v1/resources/a/b", &headers, &bytes).await;
    assert_eq!(written.json()["token"], 1_700_000_000_000_u64);

    let read = world.ask("GET", "/v1/resources/a/b", &[]).await;
    assert_eq!(read.status, 200);
    assert_eq!(read.body, bytes);
    assert_eq!(read.header("content-type"), Some("image/x-odd; a=\"b\""));
    assert_eq!(read.header("fencing-token"), Some("1700000000000"));
    assert_eq!(read.header("fencing-holder"), Some(""));
    assert_eq!(read.header("etag"), Some("\"1\""));
    assert_eq!(read.header("cache-control"), Some("no-store"));

    let untyped = world.put("/v1/resources/c", &[("Fencing-Token", "1")], "x").await;
    assert_eq!(untyped.status, 201);
    let read = world.ask("GET", "/v1/resources/c", &[]).await;
    assert_eq!(read.header("content-type"), Some("application/octet-stream"));

    // An empty value is a value.
    assert_eq!(world.put("/v1/resources/empty", &[("Fencing-Token", "1")], "").await.status, 201);
    let read = world.ask("GET", "/v1/resources/empty", &[]).await;
    assert_eq!((read.status, read.body), (200, vec![]));

    let nothing = world.ask("GET", "/v1/resources/none", &[]).await;
    assert_eq!(nothing.problem(), "404 not-found");
    assert_eq!(nothing.json()["resource"], "none");
    assert_eq!(nothing.header("cache-control"), Some("no-store"));
}

async fn late_write_with_old_token_is_rejected(world: World) {
    world.put("/v1/resources/invoice-7", &[("Fencing-Token", "34")], "by client 2").await;
    for (method, path) in [
        ("PUT", "/v1/resources/invoice-7"),
        ("DELETE", "/v1/resources/invoice-7"),
        ("GET", "/v1/resources/invoice-7"),
        ("PUT", "/v1/fences/invoice-7"),
    ] {
        let late = world.ask(method, path, &[("Fencing-Token", "33")]).await;
        assert_eq!(late.problem(), "412 stale-token", "{method} {path}");
        let json = late.json();
        assert_eq!(json["resource"], "invoice-7");
        assert_eq!(json["token"], 33);
        assert_eq!(json["highest_token"], 34);
        assert!(json["title"].is_string() && json["detail"].is_string());
    }
    let value = world.ask("GET", "/v1/resources/invoice-7", &[]).await;
    assert_eq!(value.text(), "by client 2");
    assert_eq!(value.header("etag"), Some("\"1\""));
}

async fn token_that_is_days_below_the_fence_hints_at_another_counter(world: World) {
    let put = async |token| world.put("/v1/resources/r", &[("Fencing-Token", token)], "x").await;
    assert_eq!(put("1795000000000").await.status, 201);
    for (token, is_far) in [("33", true), ("1794900000000", true), ("1794999999999", false)] {
        let late = put(token).await;
        assert_eq!(late.problem(), "412 stale-token");
        let detail = late.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(detail.contains("two lock services"), is_far, "{detail}");
    }
}

async fn same_token_from_another_holder_conflicts(world: World) {
    let ours = [("Fencing-Token", "34"), ("Fencing-Holder", HOLDER)];
    world.put("/v1/resources/r", &ours, "ours").await;
    for holder in ["somebody-else", ""] {
        let headers = [("Fencing-Token", "34"), ("Fencing-Holder", holder)];
        let theirs = world.put("/v1/resources/r", &headers, "theirs").await;
        assert_eq!(theirs.problem(), "409 holder-conflict");
        let json = theirs.json();
        assert_eq!(json["resource"], "r");
        assert_eq!(json["token"], 34);
        assert_eq!(json["highest_token"], 34);
        assert!(!theirs.text().contains(HOLDER), "an error shows no holder");
    }
    assert_eq!(world.put("/v1/resources/r", &ours, "ours again").await.status, 200);

    // Empty equals only empty.
    world.put("/v1/resources/e", &[("Fencing-Token", "1")], "x").await;
    let empty = world.put("/v1/resources/e", &[("Fencing-Token", "1")], "y").await;
    assert_eq!(empty.status, 200);
}

async fn fenced_read_claims_before_it_reads(world: World) {
    world.put("/v1/resources/r", &[("Fencing-Token", "33"), ("Fencing-Holder", "one")], "a").await;
    let headers = [("Fencing-Token", "34"), ("Fencing-Holder", "two")];
    let read = world.ask("GET", "/v1/resources/r", &headers).await;
    assert_eq!((read.status, read.text().as_str()), (200, "a"));
    // The value keeps what it was written with.
    assert_eq!(read.header("fencing-token"), Some("33"));
    assert_eq!(read.header("etag"), Some("\"1\""));

    let late = [("Fencing-Token", "33"), ("Fencing-Holder", "one")];
    assert_eq!(world.put("/v1/resources/r", &late, "b").await.problem(), "412 stale-token");
    let again = world.ask("GET", "/v1/resources/r", &headers).await;
    assert_eq!((again.status, again.text().as_str()), (200, "a"));
}

async fn fenced_read_without_a_value_claims_all_the_same(world: World) {
    let read = world.ask("GET", "/v1/resources/r", &[("Fencing-Token", "34")]).await;
    assert_eq!(read.problem(), "404 not-found");
    let late = world.put("/v1/resources/r", &[("Fencing-Token", "33")], "x").await;
    assert_eq!(late.problem(), "412 stale-token");
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.json()["version"], 0);
}

async fn delete_keeps_the_fence_and_counts_as_a_version(world: World) {
    let token = [("Fencing-Token", "34")];
    world.put("/v1/resources/r", &token, "x").await;
    for _ in 0..2 {
        let deleted = world.ask("DELETE", "/v1/resources/r", &token).await;
        assert_eq!((deleted.status, deleted.body), (204, vec![]), "with a value and without");
    }
    assert_eq!(world.ask("GET", "/v1/resources/r", &[]).await.status, 404);
    let late = world.put("/v1/resources/r", &[("Fencing-Token", "33")], "late").await;
    assert_eq!(late.problem(), "412 stale-token");
    let fence = world.ask("GET", "/v1/fences/r", &[]).await;
    assert_eq!(fence.json(), json!({"resource": "r", "token": 34, "holder": "", "version": 3}));
    let again = world.put("/v1/resources/r", &token, "y").await;
    assert_eq!((again.status, &again.json()["version"]), (201, &json!(4)));
}

async fn claim_advances_the_fence_and_leaves_the_value(world: World) {
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.problem(), "404 not-found");
    world.put("/v1/resources/r", &[("Fencing-Token", "33")], "x").await;
    let claimed = world
        .ask("PUT", "/v1/fences/r", &[("Fencing-Token", "34"), ("Fencing-Holder", "me")])
        .await;
    assert_eq!(claimed.status, 200);
    let accepted = json!({"resource": "r", "token": 34, "holder": "me", "version": 1});
    assert_eq!(claimed.json(), accepted);
    let value = world.ask("GET", "/v1/resources/r", &[]).await;
    assert_eq!((value.text().as_str(), value.header("fencing-token")), ("x", Some("33")));
    let late = world.put("/v1/resources/r", &[("Fencing-Token", "33")], "y").await;
    assert_eq!(late.problem(), "412 stale-token");
}

async fn conditional_writes_depend_on_the_version(world: World) {
    let put = async |token: &str, condition: (&str, &str)| {
        let headers = [("Fencing-Token", token), condition];
        world.put("/v1/resources/r", &headers, "x").await
    };
    let mismatch = put("1", ("If-Match", "*")).await;
    assert_eq!(mismatch.problem(), "412 version-mismatch");
    assert_eq!(mismatch.json()["resource"], "r");
    assert_eq!(mismatch.json()["version"], 0);
    assert_eq!(put("1", ("If-None-Match", "*")).await.status, 201);
    assert_eq!(put("1", ("If-None-Match", "*")).await.problem(), "412 version-mismatch");
    assert_eq!(put("1", ("If-Match", "\"1\"")).await.status, 200);
    assert_eq!(put("1", ("If-Match", "\"7\", \"2\"")).await.status, 200);
    assert_eq!(put("1", ("If-Match", "W/\"3\"")).await.problem(), "412 version-mismatch");
    for others in ["\"somebody's\"", "\"+3\"", "\"03\""] {
        assert_eq!(put("1", ("If-Match", others)).await.problem(), "412 version-mismatch");
    }
    assert_eq!(put("1", ("If-Match", "3")).await.problem(), "400 malformed-request");

    // The token was good, and has claimed; a bad one is rejected for itself.
    assert_eq!(put("9", ("If-Match", "\"1\"")).await.problem(), "412 version-mismatch");
    assert_eq!(put("8", ("If-Match", "\"3\"")).await.problem(), "412 stale-token");

    let delete = async |condition| {
        world.ask("DELETE", "/v1/resources/r", &[("Fencing-Token", "9"), condition]).await
    };
    assert_eq!(delete(("If-Match", "\"1\"")).await.problem(), "412 version-mismatch");
    assert_eq!(delete(("If-Match", "\"3\"")).await.status, 204);
    assert_eq!(put("9", ("If-Match", "\"4\"")).await.problem(), "412 version-mismatch");
}

async fn known_version_is_not_sent_again(world: World) {
    world.put("/v1/resources/r", &[("Fencing-Token", "33")], "one").await;
    for (method, known, status) in [
        ("GET", "\"1\"", 304),
        ("HEAD", "W/\"1\", \"7\"", 304),
        ("GET", "*", 304),
        ("GET", "\"2\"", 200),
    ] {
        let headers = [("If-None-Match", known), ("Fencing-Token", "34")];
        let read = world.ask(method, "/v1/resources/r", &headers).await;
        assert_eq!(read.status, status, "{method} {known}");
        assert_eq!(read.header("etag"), Some("\"1\""));
        assert_eq!(read.header("fencing-token"), Some("33"));
        assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
        // A value that is a page must not act as one of the server's own.
        let policy = read.header("content-security-policy");
        assert_eq!(policy, Some("default-src 'none'; sandbox"));
        assert_eq!(read.body.is_empty(), status == 304, "{read:?}");
    }
    let fence = world.ask("GET", "/v1/fences/r", &[]).await;
    assert_eq!(fence.json()["token"], 34, "it has claimed all the same");
    let missing = world.ask("GET", "/v1/resources/missing", &[("If-None-Match", "*")]).await;
    assert_eq!(missing.status, 404);
}

async fn head_reads_and_never_claims(world: World) {
    world.put("/v1/resources/r", &[("Fencing-Token", "33")], "value").await;
    let head = world.ask("HEAD", "/v1/resources/r", &[("Fencing-Token", "34")]).await;
    assert_eq!((head.status, head.body.as_slice()), (200, b"".as_slice()));
    assert_eq!(head.header("content-length"), Some("5"));
    assert_eq!(head.header("etag"), Some("\"1\""));
    assert_eq!(head.header("cache-control"), Some("no-store"));
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.json()["token"], 33);
}

async fn holders_are_shown_whole_only_to_themselves(world: World) {
    world.put("/v1/resources/r", &[("Fencing-Token", "1"), ("Fencing-Holder", HOLDER)], "x").await;
    let cases = [("", "01234567..."), ("another", "01234567..."), (HOLDER, HOLDER)];
    for (asked_by, shown) in cases {
        let headers = [("Fencing-Holder", asked_by)];
        let value = world.ask("GET", "/v1/resources/r", &headers).await;
        assert_eq!(value.header("fencing-holder"), Some(shown));
        let fence = world.ask("GET", "/v1/fences/r", &headers).await;
        assert_eq!(fence.json()["holder"], shown);
    }
    let short = [("Fencing-Token", "1"), ("Fencing-Holder", "short")];
    world.put("/v1/resources/s", &short, "x").await;
    assert_eq!(world.ask("GET", "/v1/fences/s", &[]).await.json()["holder"], "...");
}

async fn writes_without_a_token_are_rejected(world: World) {
    for (method, path) in
        [("PUT", "/v1/resources/r"), ("DELETE", "/v1/resources/r"), ("PUT", "/v1/fences/r")]
    {
        let answer = world.ask(method, path, &[("Fencing-Holder", "me")]).await;
        assert_eq!(answer.problem(), "428 token-required", "{method} {path}");
    }
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404, "nothing has happened");
}

async fn server_is_alive_and_ready(world: World) {
    until_ready(world.server.url(), 200).await;
    for path in ["/livez", "/readyz"] {
        let answer = world.ask("GET", path, &[]).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let ready = world.ask("GET", "/readyz", &[]).await.json();
    assert_eq!(ready["status"], "ready");
    assert_eq!(ready["oldest_operation_ms"], 0, "none is queued");
}

#[tokio::test]
async fn every_problem_has_a_page() {
    let world = World::on_sqlite(&[]).await;
    let index = world.ask("GET", "/problems", &[]).await;
    let slugs = [
        "malformed-token",
        "malformed-holder",
        "malformed-name",
        "malformed-request",
        "not-found",
        "method-not-allowed",
        "holder-conflict",
        "stale-token",
        "version-mismatch",
        "value-too-large",
        "token-required",
        "unavailable",
    ];
    for slug in slugs {
        assert!(index.text().contains(slug), "{slug} is in the index");
        let page = world.ask("GET", &format!("/problems/{slug}"), &[]).await;
        assert_eq!(page.status, 200, "{slug}");
        assert!(page.header("content-type").unwrap().starts_with("text/html"));
        assert!(page.text().contains(slug));
    }
    assert_eq!(world.ask("GET", "/problems/none", &[]).await.problem(), "404 not-found");
}

#[tokio::test]
async fn other_paths_and_methods_are_problems_too() {
    let world = World::on_sqlite(&[]).await;
    let lost = world.ask("GET", "/v2/resources/r", &[]).await;
    assert_eq!(lost.problem(), "404 not-found");
    assert_eq!(lost.header("cache-control"), Some("no-store"));
    let posted = world.ask("POST", "/v1/resources/r", &[]).await;
    assert_eq!(posted.problem(), "405 method-not-allowed");
    assert_eq!(posted.header("allow"), Some("GET,HEAD,PUT,DELETE"));
}

/// A client behind a proxy that compresses would try for ever.
async fn tag_that_never_matches_is_named_as_such(world: World) {
    let written = world.put("/v1/resources/r", &[("Fencing-Token", "34")], "one").await;
    assert_eq!(written.status, 201);
    for (tag, never_matches) in [
        ("W/\"1\"", true),
        ("\"1-gzip\"", true),
        ("\"01\"", true),
        ("\"7\", \"1-gzip\"", true),
        // The control: another version.
        ("\"7\"", false),
    ] {
        let headers = [("Fencing-Token", "34"), ("If-Match", tag)];
        let rejected = world.put("/v1/resources/r", &headers, "two").await;
        assert_eq!(rejected.problem(), "412 version-mismatch", "{tag}");
        let detail = rejected.json()["detail"].as_str().unwrap().to_owned();
        let says_so = detail.contains("never matches") && detail.contains("proxy that compresses");
        assert_eq!(says_so, never_matches, "{tag}: {detail}");
    }
}
