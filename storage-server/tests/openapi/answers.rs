//! The answers of the OpenAPI document are those of the server, with their headers and bodies.

use std::collections::BTreeSet;

use testbed::{ObjectStorage, StorageServer};

use super::{Document, JSON, LOCK, Operation, STATES};
use crate::{
    access::Guarded,
    bodies,
    database::{Database, get, offer},
    http2, object_storage,
    wire::{self, Answer},
};

/// The headers of an answer that are those of HTTP itself.
const OF_HTTP: [&str; 6] =
    ["connection", "content-length", "content-type", "date", "allow", "transfer-encoding"];
const PROBLEM: &str = "application/problem+json";
/// The answers of a server that is busy or slow. One of each is enough: all requests have the same ones.
const OF_A_BUSY_SERVER: [&str; 3] = ["408", "429", "503"];

/// The answers of a server, compared with the document.
struct Compared<'a> {
    document: &'a Document,
    seen: BTreeSet<(String, &'a str, String)>,
    /// The problem types that were seen.
    problems: BTreeSet<String>,
}

impl<'a> Compared<'a> {
    fn check(&mut self, operation: Operation<'a>, answer: &Answer) {
        let status = answer.status.to_string();
        let request = format!("{} {} {status}", operation.method(), operation.path);
        let response = &operation.described["responses"][&status];
        assert!(response.is_object(), "{request} is not in the document");
        // 1. The headers are those in the document.
        let described = response["headers"].as_object().unwrap();
        let described: BTreeSet<_> = described.keys().map(String::as_str).collect();
        let sent = answer.headers.iter().map(|(name, _)| name.as_str());
        let sent = sent.filter(|name| !OF_HTTP.contains(name));
        assert_eq!(sent.collect::<BTreeSet<_>>(), described, "{request}");
        // 2. So is the body.
        if !answer.body.is_empty() {
            let media_type = answer.header("content-type").unwrap();
            let content = response["content"].as_object().unwrap();
            let content = content.get(media_type).or_else(|| content.get("*/*"));
            let content = content.unwrap_or_else(|| panic!("{request}: {media_type}"));
            let schema = &content["schema"];
            let is_described = schema["$ref"].is_string() || schema["oneOf"].is_array();
            if media_type.contains("json") && is_described {
                let json = answer.json();
                assert!(self.document.allows(&content["schema"], &json), "{request}: {json}");
                // The controls: with a member more or less, it is another body.
                let (mut more, mut less) = (json.clone(), json);
                more.as_object_mut().unwrap().insert("more".to_owned(), 1.into());
                less.as_object_mut().unwrap().clear();
                assert!(!self.document.allows(&content["schema"], &more), "{request}");
                assert!(!self.document.allows(&content["schema"], &less), "{request}");
            }
            if media_type == PROBLEM {
                self.problems.insert(slug(answer));
            }
        }
        self.seen.insert((operation.method(), operation.path, status));
    }
}

/// The problem type of an answer.
fn slug(answer: &Answer) -> String {
    let problem = answer.json();
    let path = problem["type"].as_str().unwrap();
    path.strip_prefix("/problems/").unwrap().to_owned()
}

/// Sends requests until one is rejected: two within a second are enough.
async fn until_rejected(server: &StorageServer) -> Answer {
    loop {
        let answer = get(server, "/v1/resources").await;
        if answer.status == 429 {
            return answer;
        }
    }
}

#[tokio::test]
async fn every_answer_is_as_described() {
    let guarded = Guarded::new();
    let all = ["--prefix", "", "--allow", "read,write,claim,list,operate"];
    let (all, nobody) = (
        guarded.identity("all", &all).await,
        guarded.identity("nobody", &["--prefix", "x/", "--allow", "claim"]).await,
    );
    let file = guarded.auth_file();
    let arguments = ["--max-value-bytes", "300", "--auth-file", file.to_str().unwrap()];
    let server = guarded.database.serve(&arguments).await;
    let document = Document::of(&server).await;
    let mut compared =
        Compared { document: &document, seen: BTreeSet::new(), problems: BTreeSet::new() };
    let ask =
        async |bearer: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
            let authorization = format!("Bearer {bearer}");
            let headers = [&[("Authorization", authorization.as_str())], headers].concat();
            wire::request(server.url(), method, path, &headers, body).await
        };

    // 1. What can happen to each resource, in this order.
    let (value, fence) = ("/v1/resources/{name}", "/v1/fences/{name}");
    let transaction = "/v1/transactions";
    let by_id = "/v1/terraform/{name}?ID=a";
    let (by_other_id, by_no_id) = ("/v1/terraform/{name}?ID=b", "/v1/terraform/{name}?ID=");
    let token = |token| vec![("Fencing-Token", token)];
    let with = |name, value| vec![("Fencing-Token", "35"), (name, value)];
    let too_high = "999999999999999";
    let encoded = with("Content-Encoding", "gzip");
    let large = "x".repeat(301);
    let together = r#"{
        "conditions": [{"resource": "s", "version": null}],
        "writes": [{"resource": "s", "token": 1, "value": {"text": "x"}},
            {"resource": "t", "token": 1, "value": null}]
    }"#;
    let writes = |write: &str| format!(r#"{{"writes": [{{"resource": "r", {write}}}]}}"#);
    let stale = writes(r#""token": 34, "value": null"#);
    let token_too_high = writes(&format!(r#""token": {too_high}, "value": null"#));
    let malformed_token = writes(r#""token": 0, "value": null"#);
    let no_token = writes(r#""value": null"#);
    let requests = [
        (value, "GET", token("34"), "", 404),
        (value, "HEAD", vec![], "", 404),
        (value, "PUT", token("34"), "one", 201),
        (value, "PUT", token("35"), "two", 200),
        (value, "GET", vec![], "", 200),
        (value, "GET", token("35"), "", 200),
        (value, "HEAD", vec![], "", 200),
        (value, "GET", vec![("If-None-Match", "\"2\"")], "", 304),
        (value, "HEAD", vec![("If-None-Match", "\"2\"")], "", 304),
        (value, "PUT", with("If-Match", "\"1\""), "x", 412),
        (value, "DELETE", with("If-Match", "\"1\""), "", 412),
        (value, "PUT", token("34"), "x", 412),
        (value, "DELETE", token("34"), "", 412),
        (value, "GET", token("34"), "", 412),
        (value, "PUT", with("Fencing-Holder", "b"), "x", 409),
        (value, "DELETE", with("Fencing-Holder", "b"), "", 409),
        (value, "GET", with("Fencing-Holder", "b"), "", 409),
        (value, "PUT", with("Fencing-Holder", "a b"), "x", 400),
        (value, "GET", vec![("If-Version-At-Least", "99")], "", 503),
        (value, "PUT", with("Fencing-Sequence", "2"), "x", 200),
        (value, "PUT", with("Fencing-Sequence", "2"), "y", 422),
        (value, "DELETE", with("Fencing-Sequence", "2"), "", 422),
        (value, "PUT", with("Fencing-Sequence", "1"), "x", 409),
        (value, "DELETE", with("Fencing-Sequence", "1"), "", 409),
        (value, "PUT", with("Fencing-Sequence", "x"), "x", 400),
        (value, "PUT", token(too_high), "x", 403),
        (value, "DELETE", token(too_high), "", 403),
        (value, "GET", token(too_high), "", 403),
        (value, "PUT", token("x"), "x", 400),
        (value, "PUT", with("If-Match", "x"), "x", 400),
        (value, "DELETE", token("x"), "", 400),
        (value, "GET", token("x"), "", 400),
        (value, "HEAD", token("x"), "", 400),
        (value, "PUT", token("35"), &large, 413),
        (value, "PUT", encoded.clone(), "x", 415),
        (value, "PUT", vec![], "x", 428),
        (value, "DELETE", vec![], "", 428),
        (fence, "PUT", token("36"), "", 200),
        (fence, "GET", vec![], "", 200),
        (fence, "PUT", token("35"), "", 412),
        (fence, "PUT", vec![("Fencing-Token", "36"), ("Fencing-Holder", "b")], "", 409),
        (fence, "PUT", token(too_high), "", 403),
        (fence, "PUT", token("x"), "", 400),
        (fence, "GET", token("x"), "", 400),
        (fence, "PUT", vec![], "", 428),
        (transaction, "POST", vec![JSON], together, 200),
        (transaction, "POST", vec![JSON], together, 412),
        (transaction, "POST", vec![JSON], &stale, 409),
        (transaction, "POST", vec![JSON], &token_too_high, 403),
        (transaction, "POST", vec![JSON], "{}", 400),
        (transaction, "POST", vec![JSON], &malformed_token, 400),
        (transaction, "POST", vec![JSON], &large, 413),
        (transaction, "POST", vec![], together, 415),
        (transaction, "POST", vec![JSON], &no_token, 428),
        (STATES, "GET", vec![], "", 404),
        (STATES, "LOCK", vec![], LOCK, 200),
        (STATES, "LOCK", vec![], r#"{"ID":"b"}"#, 423),
        (STATES, "LOCK", vec![], "{}", 400),
        (STATES, "LOCK", vec![], &large, 413),
        (STATES, "LOCK", encoded.clone(), LOCK, 415),
        (STATES, "DELETE", vec![], "", 423),
        (STATES, "DELETE", vec![], &large, 413),
        (STATES, "DELETE", encoded.clone(), "x", 415),
        (by_id, "POST", vec![JSON], "{}", 201),
        (by_id, "POST", vec![JSON], "{}", 200),
        (STATES, "GET", vec![], "", 200),
        (STATES, "POST", vec![JSON], "{}", 428),
        (by_other_id, "POST", vec![JSON], "{}", 409),
        (by_other_id, "DELETE", vec![], "", 409),
        (by_other_id, "UNLOCK", vec![], "", 409),
        (by_no_id, "POST", vec![JSON], "{}", 400),
        (by_no_id, "DELETE", vec![], "", 400),
        (STATES, "UNLOCK", vec![], "{}", 400),
        (STATES, "UNLOCK", vec![], &large, 413),
        (STATES, "UNLOCK", encoded.clone(), LOCK, 415),
        (by_id, "POST", vec![JSON], &large, 413),
        (by_id, "POST", vec![], "{}", 415),
        (by_id, "DELETE", vec![], "", 200),
        (STATES, "UNLOCK", vec![], LOCK, 200),
        ("/v1/resources", "GET", vec![], "", 200),
        ("/v1/resources?limit=0", "GET", vec![], "", 400),
        (value, "DELETE", token("36"), "", 204),
        ("/livez", "GET", vec![], "", 200),
        ("/readyz", "GET", vec![], "", 200),
        ("/metrics", "GET", vec![], "", 200),
        ("/problems", "GET", vec![], "", 200),
        ("/problems/{slug}", "GET", vec![], "", 200),
        ("/openapi.json", "GET", vec![], "", 200),
        ("/docs", "GET", vec![], "", 200),
    ];
    for (path, method, headers, body, status) in requests {
        let template = path.split('?').next().unwrap();
        let operation = document.operation(method, template);
        let path = path.replace(template, &operation.example());
        let answer = ask(&all, method, &path, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {path} {headers:?}: {answer:?}");
        compared.check(operation, &answer);
    }
    // A renewal whose state was claimed by other means.
    for (method, path, headers, body) in [
        ("LOCK", "/v1/terraform/r", vec![], LOCK),
        ("PUT", "/v1/fences/terraform/r", token("37"), ""),
    ] {
        assert_eq!(ask(&all, method, path, &headers, body).await.status, 200, "{method} {path}");
    }
    let lost = ask(&all, "LOCK", "/v1/terraform/r", &[], LOCK).await;
    assert_eq!(lost.status, 409);
    compared.check(document.operation("LOCK", STATES), &lost);
    let malformed = ask(&all, "GET", "/v1/terraform/a//b", &[], "").await;
    assert_eq!(malformed.status, 400);
    compared.check(document.operation("GET", STATES), &malformed);
    for (template, path) in [(fence, "/v1/fences/none"), ("/problems/{slug}", "/problems/none")] {
        compared.check(document.operation("GET", template), &ask(&all, "GET", path, &[], "").await);
    }

    // 2. What can happen to every request.
    let many = vec![("X-Many", "1"); 101];
    for operation in document.operations() {
        let (method, path) = (operation.method(), operation.example_with_query());
        let (headers, body) = operation.example_body();
        if operation.needs_identity() {
            let unknown = ask("unknown", &method, &path, &headers, body).await;
            assert_eq!(unknown.status, 401, "{method} {path}");
            compared.check(operation, &unknown);
        }
        // At /readyz, only the details need a permission.
        if operation.described["responses"]["403"].is_object() {
            let rejected = ask(&nobody, &method, &path, &headers, body).await;
            assert_eq!(rejected.status, 403, "{method} {path}");
            compared.check(operation, &rejected);
        }
        let elsewhere =
            format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        let elsewhere = wire::send(server.url(), elsewhere.into_bytes()).await;
        assert_eq!(elsewhere.status, 421, "{method} {path}");
        compared.check(operation, &elsewhere);
        let with_many = http2::request(server.url(), &method, &path, &many).await;
        assert_eq!(with_many.status, 431, "{method} {path}");
        compared.check(operation, &with_many);
    }
    // HTTP/1 allows no more headers at all, and answers without a document.
    assert_eq!(ask(&all, "GET", "/livez", &many, "").await.status, 431);

    // 3. A server whose metrics are elsewhere.
    let elsewhere = ["--metrics-listen", "127.0.0.1:0"];
    let elsewhere = Database::sqlite().serve(&elsewhere).await;
    compared.check(document.operation("GET", "/metrics"), &get(&elsewhere, "/metrics").await);

    // 4. A server on object storage.
    let storage = ObjectStorage::start_seaweedfs().await.unwrap();
    let world = object_storage::world(&storage, "openapi", &[]).await;
    let url = world.server.url();
    let several = wire::request(url, "POST", transaction, &[JSON], together).await;
    compared.check(document.operation("POST", transaction), &several);

    // 5. A server that is busy, a client that is slow, and a database that is lost.
    let database = Database::sqlite();
    let busy = database.serve(&["--requests-per-second", "1"]).await;
    let list = document.operation("GET", "/v1/resources");
    let rejected = until_rejected(&busy).await;
    compared.check(list, &rejected);
    let database = Database::sqlite();
    let lost = database.serve(&[]).await;
    let half = "Content-Length: 2";
    let mut half = bodies::write(lost.url(), "/v1/resources/r", half, b"x").await;
    compared.check(document.operation("PUT", value), &wire::answer(&mut half).await);
    std::fs::remove_file(database.file("fenced.db")).unwrap();
    compared.check(list, &get(&lost, "/v1/resources").await);
    let written = offer(&lost, "PUT", "/v1/resources/r", 1, "x").await;
    compared.check(document.operation("PUT", value), &written);
    compared.check(document.operation("GET", "/readyz"), &get(&lost, "/readyz").await);
    let of_a_busy_server: BTreeSet<_> = compared
        .seen
        .iter()
        .map(|(_, _, status)| status.as_str())
        .filter(|status| OF_A_BUSY_SERVER.contains(status))
        .collect();
    assert_eq!(of_a_busy_server, BTreeSet::from(OF_A_BUSY_SERVER));

    // 6. A method that no operation has.
    let other = ask(&all, "PATCH", "/v1/resources/r", &[], "").await;
    let schema = &document.0["components"]["schemas"][format!("problem-{}", slug(&other))];
    assert!(other.status == 405 && document.allows(schema, &other.json()), "{other:?}");
    compared.problems.insert(slug(&other));

    // 7. That was all, but for the same answers to other requests.
    for operation in document.operations() {
        for status in operation.described["responses"].as_object().unwrap().keys() {
            let is_of_a_busy_server = OF_A_BUSY_SERVER.contains(&status.as_str());
            let answer = (operation.method(), operation.path, status.clone());
            assert!(
                is_of_a_busy_server || compared.seen.contains(&answer),
                "{answer:?} was not seen"
            );
        }
    }
    let schemas = document.0["components"]["schemas"].as_object().unwrap().keys();
    let problems = schemas.filter_map(|name| Some(name.strip_prefix("problem-")?.to_owned()));
    assert_eq!(compared.problems, problems.collect());
}
