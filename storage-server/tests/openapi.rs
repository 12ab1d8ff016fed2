//! The OpenAPI document says what the server does, and what the README says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testbed::StorageServer;

use crate::{
    access::Guarded,
    database::{Database, get},
    wire::{self, Answer},
};

const README: &str = include_str!("../README.md");
/// What a header can't have, whichever of ours it is.
const MALFORMED: &str = "a b";
const JSON: (&str, &str) = ("Content-Type", "application/json");
/// The headers of an answer that are those of HTTP itself.
const OF_HTTP: [&str; 5] = ["connection", "content-length", "content-type", "date", "allow"];
/// The answers to a server that is busy or slow, which have tests of their own.
const OF_A_BUSY_SERVER: [&str; 3] = ["408", "429", "503"];

/// An operation of the document.
#[derive(Clone, Copy)]
struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    described: &'a Value,
}

struct Document(Value);

impl Document {
    async fn of(server: &StorageServer) -> Self {
        let answer = get(server, "/openapi.json").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        Self(answer.json())
    }

    fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.0["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
            item.as_object().unwrap().iter().map(move |(method, described)| Operation {
                method,
                path,
                described,
            })
        })
    }

    fn operation(&self, method: &str, path: &str) -> Operation<'_> {
        let found = self.operations().find(|it| it.method() == method && it.path == path);
        found.unwrap_or_else(|| panic!("{method} {path} is not in the document"))
    }

    /// Whether a value is as a schema says, as far as the document uses schemas of answers.
    fn allows(&self, schema: &Value, value: &Value) -> bool {
        if let Some(reference) = schema["$ref"].as_str() {
            let path = reference.strip_prefix('#').unwrap();
            return self.allows(self.0.pointer(path).unwrap(), value);
        }
        if let Some(alternatives) = schema["oneOf"].as_array() {
            return alternatives.iter().filter(|it| self.allows(it, value)).count() == 1;
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            Value::Null => return true,
            one => vec![one.clone()],
        };
        let is_of = |of: &Value| match of.as_str().unwrap() {
            "null" => value.is_null(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.as_u64().is_some_and(|number| {
                number >= schema["minimum"].as_u64().unwrap_or(0)
                    && number <= schema["maximum"].as_u64().unwrap_or(u64::MAX)
            }),
            "array" => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| self.allows(&schema["items"], item))),
            "object" => value.as_object().is_some_and(|members| {
                let required = schema["required"].as_array().into_iter().flatten();
                let mut required = required.map(|name| name.as_str().unwrap());
                required.all(|name| members.contains_key(name))
                    && members.iter().all(|(name, member)| {
                        let property = &schema["properties"][name];
                        !property.is_null() && self.allows(property, member)
                    })
            }),
            other => panic!("{other} is no type of this document"),
        };
        let is_listed = |values: &Vec<Value>| values.contains(value);
        types.iter().any(is_of) && schema["enum"].as_array().is_none_or(is_listed)
    }
}

impl Operation<'_> {
    fn method(&self) -> String {
        self.method.to_uppercase()
    }

    /// The path of one resource or problem.
    fn example(&self) -> String {
        self.path.replace("{name}", "r").replace("{slug}", "stale-token")
    }

    /// The headers and the body of a well-formed request, beside what its parameters describe.
    fn example_body(&self) -> (Vec<(&'static str, &'static str)>, &'static str) {
        match self.described["requestBody"]["required"] == true {
            true => (vec![JSON], r#"{"writes":[{"resource":"r","token":1,"value":null}]}"#),
            false => (vec![], ""),
        }
    }

    fn parameters(&self, place: &str) -> BTreeMap<&str, bool> {
        let all = self.described["parameters"].as_array().into_iter().flatten();
        all.filter(|parameter| parameter["in"] == place)
            .map(|it| (it["name"].as_str().unwrap(), it["required"] == true))
            .collect()
    }

    fn needs_identity(&self) -> bool {
        !self.described["responses"]["401"].is_null()
    }
}

/// The rows of a table of the README, by the first line of its head.
fn rows(head: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let begin = README.find(head).unwrap_or_else(|| panic!("{head} is there"));
    let rows = README[begin..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').map(str::trim).collect())
}

/// The texts in backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The headers that the README lists as a part of requests.
fn fencing_headers() -> Vec<&'static str> {
    rows("| part | format |").flat_map(|row| quoted(row[1]).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn document_and_page_need_no_identity() {
    let guarded = Guarded::new();
    guarded.identity("all", &["--prefix", "", "--allow", "read"]).await;
    let server = guarded.serve().await;
    assert_eq!(get(&server, "/v1/resources").await.status, 401, "the control");
    let document = Document::of(&server).await;
    assert!(document.0["openapi"].as_str().unwrap().starts_with("3.1"));
    let schemes = document.0["components"]["securitySchemes"].as_object().unwrap();
    assert_eq!(schemes["bearer"]["scheme"], "bearer");
    assert_eq!(schemes["certificate"]["type"], "mutualTLS");

    let page = get(&server, "/docs").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let page = page.text();
    for operation in document.operations() {
        let shown = format!("<h2><code>{} {}</code></h2>", operation.method(), operation.path);
        assert!(page.contains(&shown), "{shown}");
    }
    for (name, _) in document.0["components"]["schemas"].as_object().unwrap() {
        assert!(page.contains(&format!("<h3>{name}</h3>")), "{name}");
    }
    for foreign in ["<script", "src=", "http:", "https:", "@import", "style="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[tokio::test]
async fn methods_are_those_of_the_server() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let document = Document::of(&server).await;
    let mut methods: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for operation in document.operations() {
        methods.entry(operation.example()).or_default().insert(operation.method());
    }
    assert!(methods["/v1/resources/r"].contains("DELETE"));
    for (path, mut methods) in methods {
        // HEAD is the same as GET without the body.
        if methods.contains("GET") {
            methods.insert("HEAD".to_owned());
        }
        let answer = wire::request(server.url(), "PATCH", &path, &[], "").await;
        assert_eq!(answer.problem(), "405 method-not-allowed", "{path}");
        let allowed = answer.header("allow").unwrap().split(',').map(|it| it.trim().to_owned());
        assert_eq!(allowed.collect::<BTreeSet<_>>(), methods, "{path}");
    }
}

#[tokio::test]
async fn readme_lists_every_operation_and_nothing_else() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let document = Document::of(&server).await;
    let mut described = BTreeSet::new();
    for operation in document.operations() {
        let query = operation.parameters("query");
        let query: Vec<_> = query.keys().map(|name| format!("{name}=")).collect();
        described.insert((operation.method(), operation.path.to_owned(), {
            query.into_iter().collect::<BTreeSet<_>>()
        }));
    }
    let listed = rows("| request | meaning |").flat_map(|row| quoted(row[1]).collect::<Vec<_>>());
    let listed = listed.map(|request| {
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('&').filter(|name| !name.is_empty()).map(str::to_owned);
        (method.to_owned(), path.to_owned(), query.collect())
    });
    assert_eq!(described, listed.collect());
}

#[tokio::test]
async fn headers_of_requests_are_those_that_the_server_parses() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let document = Document::of(&server).await;
    let headers = fencing_headers();
    assert!(headers.contains(&"Fencing-Token") && headers.contains(&"If-Match"), "{headers:?}");
    let mut parsed = BTreeSet::new();
    for operation in document.operations() {
        let (method, path) = (operation.method(), operation.example());
        let parameters = operation.parameters("header");
        let known =
            |name: &&str| headers.contains(name) || ["X-Request-Id", "traceparent"].contains(name);
        assert!(parameters.keys().all(known), "{method} {path}: {parameters:?}");
        let required = parameters.iter().filter(|(_, required)| **required);
        let required: Vec<_> = required.map(|(name, _)| *name).collect();
        for header in &headers {
            // Without the header itself, all that is required has a value that is well formed.
            let others = required.iter().filter(|name| *name != header);
            let (mut sent, body) = operation.example_body();
            sent.extend(others.map(|name| (*name, "1")));
            let without = wire::request(server.url(), &method, &path, &sent, body).await;
            let is_required = without.status == 428;
            assert_eq!(is_required, required.contains(header), "{method} {path} {header}");
            sent.push((header, MALFORMED));
            let answer = wire::request(server.url(), &method, &path, &sent, body).await;
            let is_parsed = answer.status == 400;
            assert_eq!(is_parsed, parameters.contains_key(header), "{method} {path} {header}");
            parsed.extend(is_parsed.then_some(*header));
        }
    }
    assert_eq!(parsed, headers.iter().copied().collect());
}

/// The answers of a server, compared with the document.
struct Compared<'a> {
    document: &'a Document,
    seen: BTreeSet<(String, &'a str, String)>,
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
            if media_type.contains("json") && !operation.path.ends_with("json") {
                let json = answer.json();
                assert!(self.document.allows(&content["schema"], &json), "{request}: {json}");
                // The controls: with a member more or less, it is another body.
                let (mut more, mut less) = (json.clone(), json);
                more.as_object_mut().unwrap().insert("more".to_owned(), 1.into());
                less.as_object_mut().unwrap().clear();
                assert!(!self.document.allows(&content["schema"], &more), "{request}");
                assert!(!self.document.allows(&content["schema"], &less), "{request}");
            }
        }
        self.seen.insert((operation.method(), operation.path, status));
    }
}

#[tokio::test]
async fn every_answer_is_as_described() {
    let guarded = Guarded::new();
    let all = ["--prefix", "", "--allow", "read,write,claim,list,operate"];
    let (all, nobody) = (
        guarded.identity("all", &all).await,
        guarded.identity("nobody", &["--prefix", "x/", "--allow", "read"]).await,
    );
    let file = guarded.auth_file();
    let arguments = ["--max-value-bytes", "300", "--auth-file", file.to_str().unwrap()];
    let server = guarded.database.serve(&arguments).await;
    let document = Document::of(&server).await;
    let mut compared = Compared { document: &document, seen: BTreeSet::new() };
    let ask =
        async |bearer: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
            let authorization = format!("Bearer {bearer}");
            let headers = [&[("Authorization", authorization.as_str())], headers].concat();
            wire::request(server.url(), method, path, &headers, body).await
        };

    // 1. What can happen to each resource, in this order.
    let (value, fence) = ("/v1/resources/{name}", "/v1/fences/{name}");
    let transaction = "/v1/transactions";
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
        (value, "PUT", encoded, "x", 415),
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
    for (template, path) in [(fence, "/v1/fences/none"), ("/problems/{slug}", "/problems/none")] {
        compared.check(document.operation("GET", template), &ask(&all, "GET", path, &[], "").await);
    }

    // 2. What can happen to every request.
    let many = vec![("X-Many", "1"); 101];
    for operation in document.operations() {
        let (method, path) = (operation.method(), operation.example());
        let (headers, body) = operation.example_body();
        if operation.needs_identity() {
            let unknown = ask("unknown", &method, &path, &headers, body).await;
            assert_eq!(unknown.status, 401, "{method} {path}");
            compared.check(operation, &unknown);
        }
        // At /readyz, only the details need a permission.
        if operation.described["responses"]["403"].is_object() {
            let refused = ask(&nobody, &method, &path, &headers, body).await;
            assert_eq!(refused.status, 403, "{method} {path}");
            compared.check(operation, &refused);
        }
        let elsewhere =
            format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        let elsewhere = wire::send(server.url(), elsewhere.into_bytes()).await;
        assert_eq!(elsewhere.status, 421, "{method} {path}");
        compared.check(operation, &elsewhere);
    }
    // HTTP/1 allows no more headers at all, and answers without a document.
    assert_eq!(ask(&all, "GET", "/livez", &many, "").await.status, 431);

    // 3. A server whose metrics are elsewhere.
    let elsewhere = ["--metrics-listen", "127.0.0.1:0"];
    let elsewhere = Database::sqlite().serve(&elsewhere).await;
    compared.check(document.operation("GET", "/metrics"), &get(&elsewhere, "/metrics").await);

    // 4. That was all, but for busy servers.
    for operation in document.operations() {
        for status in operation.described["responses"].as_object().unwrap().keys() {
            let has_own_test = OF_A_BUSY_SERVER.contains(&status.as_str()) || status == "431";
            let answer = (operation.method(), operation.path, status.clone());
            assert!(has_own_test || compared.seen.contains(&answer), "{answer:?} was not seen");
        }
    }
}
