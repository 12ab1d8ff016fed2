//! Who may do what: identities, their scopes, and the file that they are in.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use hyper::Request;
use serde_json::json;
use testbed::{StorageServer, wait::until_async};
use tokio::{io::AsyncWriteExt, sync::oneshot, time::sleep};

use crate::{
    bodies::{ROOM_FOR_ONE, VALUE_BYTES, send_in_parts, until_room_is_taken},
    connections::{is_logged, read_answer, sending},
    database::Database,
    readiness::until_ready,
    wire::{self, Answer},
    world::World,
};

/// In this time, a changed file is in force.
pub(crate) const IN_FORCE: Duration = Duration::from_secs(10);

/// Every request that needs an identity.
const REQUESTS: [(&str, &str); 7] = [
    ("GET", "/v1/resources/orders/1"),
    ("HEAD", "/v1/resources/orders/1"),
    ("PUT", "/v1/resources/orders/1"),
    ("DELETE", "/v1/resources/orders/1"),
    ("GET", "/v1/fences/orders/1"),
    ("PUT", "/v1/fences/orders/1"),
    ("GET", "/v1/resources"),
];

/// An auth file, and a database for a server that uses it.
pub(crate) struct Guarded {
    pub(crate) database: Database,
}

impl Guarded {
    pub(crate) fn new() -> Self {
        Self { database: Database::sqlite() }
    }

    pub(crate) fn auth_file(&self) -> PathBuf {
        self.database.file("auth.toml")
    }

    /// Makes an identity, and returns its bearer token.
    pub(crate) async fn identity(&self, name: &str, arguments: &[&str]) -> String {
        let path = self.auth_file();
        let new = ["auth", "new", "--auth-file", path.to_str().unwrap(), "--name", name];
        let printed = self.database.run(&[&new[..], arguments].concat()).await.printed();
        printed.trim_end().to_owned()
    }

    pub(crate) async fn serve(&self) -> StorageServer {
        self.database.serve(&["--auth-file", self.auth_file().to_str().unwrap()]).await
    }
}

pub(crate) async fn ask(
    server: &StorageServer,
    bearer: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> Answer {
    let authorization = format!("Bearer {bearer}");
    let mut headers = vec![("Authorization", authorization.as_str())];
    headers.extend(token.map(|token| ("Fencing-Token", token)));
    wire::request(server.url(), method, path, &headers, "").await
}

async fn is_known(server: &StorageServer, bearer: &str) -> bool {
    ask(server, bearer, "GET", "/v1/fences/orders/none", None).await.status != 401
}

#[tokio::test]
async fn clients_without_an_identity_are_rejected() {
    let guarded = Guarded::new();
    let bearer =
        guarded.identity("all", &["--prefix", "", "--allow", "read,write,claim,list"]).await;
    let server = guarded.serve().await;
    let file = fs::read_to_string(guarded.auth_file()).unwrap();
    let hash = file.split('"').find(|text| text.len() == 64).unwrap();
    let headers = [
        vec![],
        vec![("Authorization", String::new())],
        vec![("Authorization", "Bearer ".to_owned())],
        vec![("Authorization", format!("Bearer {hash}"))],
        vec![("Authorization", format!("Bearer {}", &bearer[1..]))],
        vec![("Authorization", format!("Basic {bearer}"))],
        vec![("Authorization", bearer.clone())],
        vec![("Authorization", format!("Bearer {bearer}")), ("Authorization", "x".to_owned())],
    ];
    for (method, path) in REQUESTS {
        for headers in &headers {
            let mut headers: Vec<_> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            headers.push(("Fencing-Token", "1"));
            let answer = wire::request(server.url(), method, path, &headers, "").await;
            assert_eq!(answer.status, 401, "{method} {path} {headers:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            if method != "HEAD" {
                assert_eq!(answer.problem(), "401 unauthenticated");
            }
        }
        let answer = ask(&server, &bearer, method, path, Some("1")).await;
        assert!(![401, 403].contains(&answer.status), "{method} {path}: {answer:?}");
    }
    for path in ["/livez", "/readyz", "/problems", "/problems/unauthenticated"] {
        let answer = wire::request(server.url(), "GET", path, &[], "").await;
        assert_eq!(answer.status, 200, "{path}");
    }

    // The control: without a file, everything is open, whatever the client sends.
    let world = World::on_sqlite(&[]).await;
    for (method, path) in REQUESTS {
        let answer = ask(&world.server, &bearer, method, path, Some("1")).await;
        assert!(![401, 403].contains(&answer.status), "{method} {path}: {answer:?}");
    }
}

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
    let refused = ask(&server, writer, "PUT", "/v1/resources/invoices/1", Some("9")).await;
    assert_eq!(refused.problem(), "403 forbidden");
    let json = refused.json();
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

/// The hash of a token that a script took from a variable that is not set.
#[tokio::test]
async fn empty_token_is_no_token() {
    let guarded = Guarded::new();
    guarded.identity("writer", &["--prefix", "", "--allow", "read"]).await;
    let text = fs::read_to_string(guarded.auth_file()).unwrap();
    let begin = text.find("token-sha256 = \"").unwrap() + "token-sha256 = \"".len();
    let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let text = format!("{}{of_nothing}{}", &text[..begin], &text[begin + 64..]);
    fs::write(guarded.auth_file(), text).unwrap();
    let server = guarded.serve().await;
    let stream = wire::connect(server.url()).await;
    // HTTP/1 removes the space at the end.
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let get = Request::get(format!("{}/v1/resources", server.url()));
    let get = get.header("Authorization", "Bearer ").body(()).unwrap();
    let (answer, _) = client.send_request(get, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 401);
}

/// A client that is still sending when the connection is closed might not see the answer.
#[tokio::test]
async fn rejection_of_a_large_value_reaches_the_client() {
    let guarded = Guarded::new();
    let writer = guarded.identity("writer", &["--prefix", "orders/", "--allow", "write"]).await;
    let arguments =
        ["--max-value-bytes", "8388608", "--auth-file", guarded.auth_file().to_str().unwrap()]
            .map(str::to_owned);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let server = guarded.database.serve(&arguments).await;
    let value = "x".repeat(8 << 20);
    let put = async |bearer: &str, path: &str| {
        let authorization = format!("Bearer {bearer}");
        let headers = [("Authorization", authorization.as_str()), ("Fencing-Token", "1")];
        wire::request(server.url(), "PUT", path, &headers, &value).await
    };
    assert_eq!(put("unknown", "/v1/resources/orders/1").await.problem(), "401 unauthenticated");
    assert_eq!(put(&writer, "/v1/resources/invoices/1").await.problem(), "403 forbidden");
    assert_eq!(put(&writer, "/v1/resources/orders/1").await.status, 201, "the control");
    let headers = [("Authorization", format!("Bearer {writer}"))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let post = wire::request(server.url(), "POST", "/v1/resources/orders/1", &headers, &value);
    assert_eq!(post.await.problem(), "405 method-not-allowed");
}

/// Otherwise clients that may not write could keep out those that may.
#[tokio::test]
async fn body_of_a_rejected_request_takes_no_room() {
    const PAUSE: Duration = Duration::from_millis(160);
    let guarded = Guarded::new();
    let operator = guarded.identity("operator", &["--prefix", "", "--allow", "operate"]).await;
    let writer = guarded.identity("writer", &["--prefix", "orders/", "--allow", "write"]).await;
    let auth_file = guarded.auth_file();
    let arguments = [&ROOM_FOR_ONE[..], &["--auth-file", auth_file.to_str().unwrap()]].concat();
    let server = guarded.database.serve(&arguments).await;
    let value = vec![b'x'; VALUE_BYTES];
    // Whether a write waits until the body of another request, which comes slowly, has ended.
    let keeps_others_out = async |host: &str, bearer: &str, name: &str, token: u32, status: u16| {
        let (answered, mut is_answered) = oneshot::channel();
        let slow = async {
            let head = format!(
                "PUT /v1/resources/{name} HTTP/1.1\r\nHost: {host}\r\nFencing-Token: {token}\r\n\
                 Authorization: Bearer {bearer}\r\nContent-Length: {VALUE_BYTES}\r\n\r\n"
            );
            let mut connection = sending(server.url(), head.as_bytes()).await;
            let (last, most) = value.split_last().unwrap();
            let (mut is_steady, mut keeps_out) = (true, true);
            // At most 4 s: the server reads the body of a rejected request for 5 s.
            for bytes in most.chunks(VALUE_BYTES / 8) {
                if !keeps_out {
                    connection.write_all(bytes).await.unwrap();
                } else if !send_in_parts(&mut connection, bytes, 4, PAUSE).await {
                    is_steady = false;
                    break;
                }
                keeps_out &= is_answered.try_recv().is_err();
            }
            if is_steady {
                connection.write_all(&[*last]).await.unwrap();
                let answer = read_answer(&mut connection).await;
                assert_eq!(answer.0, status, "{}", String::from_utf8_lossy(&answer.1));
            }
            is_steady.then_some(keeps_out)
        };
        let other = async {
            if status == 201 {
                let metrics = async || ask(&server, &operator, "GET", "/metrics", None).await;
                until_room_is_taken(metrics).await;
            } else {
                // Nothing shows when the server has rejected a request whose body is not there.
                sleep(Duration::from_millis(500)).await;
            }
            let authorization = format!("Bearer {writer}");
            let headers = [("Authorization", authorization.as_str()), ("Fencing-Token", "1")];
            let path = "/v1/resources/orders/other";
            let written = wire::request(server.url(), "PUT", path, &headers, &value).await;
            assert!([200, 201].contains(&written.status), "{written:?}");
            let _ = answered.send(());
        };
        tokio::join!(slow, other).0
    };
    let kept_out = async |host: &str, bearer: &str, name: &str, token: u32, status: u16| {
        for _ in 0..10 {
            if let Some(kept_out) = keeps_others_out(host, bearer, name, token, status).await {
                return kept_out;
            }
        }
        panic!("the machine is too busy for a steady client");
    };
    assert!(!kept_out("evil.example", &writer, "orders/1", 1, 421).await);
    assert!(!kept_out("localhost", "unknown", "orders/1", 1, 401).await);
    assert!(!kept_out("localhost", &writer, "invoices/1", 1, 403).await);
    assert!(!kept_out("localhost", &writer, "orders/1", 0, 400).await);
    assert!(kept_out("localhost", &writer, "orders/1", 1, 201).await, "the control");
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

#[tokio::test]
async fn changed_file_is_in_force_within_ten_seconds() {
    let guarded = Guarded::new();
    let first = guarded.identity("first", &["--prefix", "", "--allow", "read,operate"]).await;
    let server = guarded.serve().await;
    let before = fs::read_to_string(guarded.auth_file()).unwrap();
    assert!(is_known(&server, &first).await);

    let second = guarded.identity("second", &["--prefix", "", "--allow", "read"]).await;
    assert!(!is_known(&server, &second).await, "the file has not been read yet");
    until_async(IN_FORCE, async || Ok(is_known(&server, &second).await)).await.unwrap();
    assert!(is_known(&server, &first).await);

    // A broken file lets nobody new in, and nobody who was known loses anything.
    let added = fs::read_to_string(guarded.auth_file()).unwrap();
    let elsewhere = Guarded::new();
    let third = elsewhere.identity("third", &["--prefix", "", "--allow", "read"]).await;
    let with_third = added.clone() + &fs::read_to_string(elsewhere.auth_file()).unwrap();
    fs::write(guarded.auth_file(), format!("{with_third}\ncolour = \"red\"\n")).unwrap();
    let is_broken = async || {
        let ready = ask(&server, &first, "GET", "/readyz", None).await;
        Ok(ready.json()["auth_file"].as_str().is_some_and(|fault| fault.contains("colour")))
    };
    until_async(IN_FORCE, is_broken).await.unwrap();
    assert_eq!(ask(&server, &first, "GET", "/readyz", None).await.status, 200);
    assert!(is_known(&server, &first).await && is_known(&server, &second).await);
    assert!(!is_known(&server, &third).await);
    is_logged(&server, "colour").await;

    // A missing file changes as little.
    fs::remove_file(guarded.auth_file()).unwrap();
    let is_missing = async || {
        let ready = ask(&server, &first, "GET", "/readyz", None).await;
        Ok(ready.json()["auth_file"].as_str().is_some_and(|fault| fault.contains("No such file")))
    };
    until_async(IN_FORCE, is_missing).await.unwrap();
    assert!(is_known(&server, &first).await && is_known(&server, &second).await);

    // An identity that is not in the repaired file is unknown.
    assert_ne!(before, added);
    fs::write(guarded.auth_file(), &before).unwrap();
    let removed = Instant::now();
    until_async(IN_FORCE, async || Ok(!is_known(&server, &second).await)).await.unwrap();
    assert!(removed.elapsed() < IN_FORCE);
    let ready = ask(&server, &first, "GET", "/readyz", None).await;
    assert_eq!(ready.json()["auth_file"], json!(null));
}

#[tokio::test]
async fn server_does_not_start_with_a_file_that_it_can_not_trust() {
    let guarded = Guarded::new();
    let path = guarded.auth_file();
    let start = async || {
        let arguments = ["--listen", "127.0.0.1:0", "--auth-file", path.to_str().unwrap()];
        guarded.database.run(&arguments).await.failed()
    };
    assert!(start().await.contains("No such file"));
    guarded.identity("first", &["--prefix", "", "--allow", "read"]).await;
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("allow", "allows")).unwrap();
    let error = start().await;
    assert!(error.contains("auth.toml") && error.contains("unknown field `allows`"), "{error}");
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let error = start().await;
    assert!(error.contains("all users of this machine may write to it"), "{error}");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    guarded.serve().await;
    // Reading it would wait for ever.
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let error = start().await;
    assert!(error.contains("it is not a regular file"), "{error}");
}

#[tokio::test]
async fn new_identity_is_printed_once_and_kept_as_a_hash() {
    let guarded = Guarded::new();
    let path = guarded.auth_file();
    let one = ["--prefix", "orders/", "--allow", "read,write", "--token-ceiling", "1d"];
    let bearer = guarded.identity("one", &one).await;
    assert!(bearer.len() == 64 && bearer.bytes().all(|byte| byte.is_ascii_hexdigit()), "{bearer}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&bearer));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let new = ["auth", "new", "--auth-file", path.to_str().unwrap(), "--name", "one"];
    let again = guarded.database.run(&[&new[..], &one[..]].concat()).await.failed();
    assert!(again.contains("\"one\" is there twice"), "{again}");
    let typo = [&new[..], &["--prefix", "a", "--allow", "wirte"]].concat();
    assert_eq!(guarded.database.run(&typo).await.code, Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing was added");
}
