//! The scopes of an identity.

use serde_json::json;
use testbed::StorageServer;

use super::{Guarded, ask};
use crate::{
    readiness::until_ready,
    wire::{self, Answer},
};

#[tokio::test]
async fn identity_may_do_only_what_its_scope_allows() {
    let guarded = Guarded::new();
    let all = guarded.identity("all", &["--prefix", "", "--allow", "write"]).await;
    let mut bearers = Vec::new();
    for permission in ["read", "write", "claim", "list", "operate"] {
        let arguments = ["--prefix", "orders/", "--allow", permission];
        bearers.push((permission, guarded.identity(permission, &arguments).await));
    }
    let reader =
        guarded.identity("fenced", &["--prefix", "orders/", "--allow", "read,claim"]).await;
    let server = guarded.serve().await;
    for name in ["orders/1", "invoices/1"] {
        let path = format!("/v1/resources/{name}");
        assert_eq!(ask(&server, &all, "PUT", &path, Some("1")).await.status, 201);
    }
    let requests = [
        ("read", "GET", "resources", None),
        ("read", "HEAD", "resources", None),
        ("read", "HEAD", "resources", Some("1")),
        ("read", "GET", "fences", None),
        ("claim", "PUT", "fences", Some("1")),
        ("write", "PUT", "resources", Some("1")),
        ("write", "DELETE", "resources", Some("1")),
    ];
    for (needed, method, kind, token) in requests {
        for (permission, bearer) in &bearers {
            // Without a value or fence, the answer is the same.
            for name in ["invoices/1", "invoices/none", "orders", "order%73"] {
                let path = format!("/v1/{kind}/{name}");
                let answer = ask(&server, bearer, method, &path, token).await;
                assert_eq!(answer.status, 403, "{permission}: {method} {path}");
            }
            for name in ["orders/1", "%6Frders%2F1", "orders/none"] {
                let path = format!("/v1/{kind}/{name}");
                let answer = ask(&server, bearer, method, &path, token).await;
                let is_allowed = answer.status != 403;
                assert_eq!(is_allowed, *permission == needed, "{permission}: {method} {path}");
            }
        }
    }
    let (_, writer) = &bearers[1];
    let rejected = ask(&server, writer, "PUT", "/v1/resources/invoices/1", Some("9")).await;
    assert_eq!(rejected.problem(), "403 forbidden");
    let json = rejected.json();
    assert_eq!((&json["identity"], &json["permission"]), (&json!("write"), &json!("write")));
    assert_eq!(json["detail"], "write may not write \"invoices/1\"");
    // The scope is checked before the rest of the request.
    let without_token = ask(&server, writer, "PUT", "/v1/resources/invoices/1", None).await;
    assert_eq!(without_token.problem(), "403 forbidden");

    // A fenced read needs both permissions, and nothing was claimed without them.
    for (permission, bearer) in &bearers {
        let answer = ask(&server, bearer, "GET", "/v1/resources/orders/1", Some("5")).await;
        assert_eq!(answer.problem(), "403 forbidden", "{permission}");
    }
    let fence = ask(&server, &reader, "GET", "/v1/fences/orders/1", None).await;
    assert_eq!(fence.json()["token"], 1);
    let read = ask(&server, &reader, "GET", "/v1/resources/orders/none", Some("5")).await;
    assert_eq!(read.problem(), "404 not-found");
    let fence = ask(&server, &reader, "GET", "/v1/fences/orders/none", None).await;
    assert_eq!(fence.json()["token"], 5, "the control");
}

#[tokio::test]
async fn lists_need_a_prefix_of_the_scope() {
    let guarded = Guarded::new();
    let all = guarded.identity("all", &["--prefix", "", "--allow", "write,list"]).await;
    let two = ["--prefix", "b/", "--prefix", "d", "--allow", "list"];
    let lister = guarded.identity("lister", &two).await;
    let server = guarded.serve().await;
    for name in ["a", "b", "b/1", "b/2", "b/3", "c", "d", "d/1"] {
        let path = format!("/v1/resources/{name}");
        assert_eq!(ask(&server, &all, "PUT", &path, Some("1")).await.status, 201);
    }
    let list = async |bearer: &str, query: &str| {
        ask(&server, bearer, "GET", &format!("/v1/resources{query}"), None).await
    };
    let names = |answer: Answer| {
        let json = answer.json();
        let resources = json["resources"].as_array().unwrap().iter();
        let names: Vec<_> =
            resources.map(|listed| listed["resource"].as_str().unwrap().to_owned()).collect();
        (names.join(" "), json["next"].clone())
    };
    for outside in ["", "?prefix=b", "?prefix=c", "?prefix=a", "?after=b/1", "?prefix=B/"] {
        assert_eq!(list(&lister, outside).await.problem(), "403 forbidden", "{outside}");
    }
    assert_eq!(names(list(&lister, "?prefix=b/&limit=2").await), ("b/1 b/2".into(), json!("b/2")));
    let next = list(&lister, "?prefix=b/&limit=2&after=b/2").await;
    assert_eq!(names(next), ("b/3".into(), json!(null)));
    assert_eq!(names(list(&lister, "?prefix=b/2").await), ("b/2".into(), json!(null)));
    assert_eq!(names(list(&lister, "?prefix=d").await), ("d d/1".into(), json!(null)));
    assert_eq!(names(list(&all, "").await).0, "a b b/1 b/2 b/3 c d d/1", "the control");
}

#[tokio::test]
async fn each_scope_has_its_own_ceiling() {
    let guarded = Guarded::new();
    let claim = async |bearer: &str, server: &StorageServer, name: &str, token: &str| {
        ask(server, bearer, "PUT", &format!("/v1/fences/{name}"), Some(token)).await
    };
    let arguments = ["--prefix", "low/", "--allow", "claim,read", "--token-ceiling", "5000"];
    let low = guarded.identity("low", &arguments).await;
    let arguments = ["--prefix", "", "--allow", "claim", "--token-ceiling", "none"];
    let high = guarded.identity("high", &arguments).await;
    let default = guarded.identity("default", &["--prefix", "", "--allow", "claim"]).await;
    let server = guarded.serve().await;

    assert_eq!(claim(&low, &server, "low/1", "5001").await.problem(), "403 token-too-high");
    let none = ask(&server, &low, "GET", "/v1/fences/low/1", None).await;
    assert_eq!(none.status, 404, "a rejected token raises no fence");
    assert_eq!(claim(&low, &server, "low/1", "5000").await.status, 200);
    assert_eq!(claim(&low, &server, "low/1", "6001").await.problem(), "403 token-too-high");
    assert_eq!(claim(&low, &server, "low/1", "6000").await.status, 200, "a step");
    assert_eq!(claim(&default, &server, "low/1", "1700000000000").await.status, 200);
    let highest = claim(&default, &server, "x", "999999999999999").await;
    assert_eq!(highest.problem(), "403 token-too-high");
    assert_eq!(claim(&high, &server, "x", "999999999999999").await.status, 200);
}

#[tokio::test]
async fn readiness_is_shown_to_all_and_its_reasons_to_operators() {
    let guarded = Guarded::new();
    let reader = guarded.identity("reader", &["--prefix", "", "--allow", "read"]).await;
    let operator = guarded.identity("operator", &["--prefix", "x/", "--allow", "operate"]).await;
    let server = guarded.serve().await;
    until_ready(server.url(), 200).await;
    let nobody = wire::request(server.url(), "GET", "/readyz", &[], "").await;
    for ready in [nobody, ask(&server, &reader, "GET", "/readyz", None).await] {
        assert_eq!((ready.status, ready.json()), (200, json!({"status": "ready"})));
    }
    let ready = ask(&server, &operator, "GET", "/readyz", None).await;
    assert_eq!(ready.json(), json!({"status": "ready", "oldest_operation_ms": 0}));
}
