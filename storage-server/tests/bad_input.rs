//! Bad input: a clear error, and nothing changed.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::io::AsyncWriteExt;

use crate::{database::Database, on_both_databases::on_all_stores, wire, world::World};

#[tokio::test]
async fn malformed_tokens_are_rejected() {
    let world = World::on_sqlite(&[]).await;
    let tokens = [
        "",
        "0",
        "-1",
        "+1",
        "01",
        "1.0",
        "1e3",
        "1 2",
        "0x1",
        "abc",
        "1,2",
        "1_000",
        "\u{b2}",
        "1000000000000000",
        "18446744073709551617",
    ];
    for token in tokens {
        for (method, path) in
            [("PUT", "/v1/resources/r"), ("GET", "/v1/resources/r"), ("PUT", "/v1/fences/r")]
        {
            let answer = world.ask(method, path, &[("Fencing-Token", token)]).await;
            assert_eq!(answer.problem(), "400 malformed-token", "{method} {path} {token:?}");
        }
    }
    let twice = [("Fencing-Token", "34"), ("Fencing-Token", "34")];
    let answer = world.put("/v1/resources/r", &twice, "x").await;
    assert_eq!(answer.problem(), "400 malformed-token");
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404, "nothing has happened");
}

#[tokio::test]
async fn malformed_holders_are_rejected() {
    let world = World::on_sqlite(&[]).await;
    let too_long = "x".repeat(129);
    for holder in ["a b", "a\tb", "\u{17c}", &too_long] {
        let headers = [("Fencing-Token", "1"), ("Fencing-Holder", holder)];
        let answer = world.put("/v1/resources/r", &headers, "x").await;
        assert_eq!(answer.problem(), "400 malformed-holder", "{holder:?}");
    }
    let twice = [("Fencing-Token", "1"), ("Fencing-Holder", "a"), ("Fencing-Holder", "a")];
    let answer = world.put("/v1/resources/r", &twice, "x").await;
    assert_eq!(answer.problem(), "400 malformed-holder");
    // A control character makes no header at all: the HTTP parser rejects the request.
    let headers = [("Fencing-Token", "1"), ("Fencing-Holder", "a\u{1}b")];
    assert_eq!(world.put("/v1/resources/r", &headers, "x").await.status, 400);
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404, "nothing has happened");

    let longest = "x".repeat(128);
    let headers = [("Fencing-Token", "1"), ("Fencing-Holder", longest.as_str())];
    assert_eq!(world.put("/v1/resources/r", &headers, "x").await.status, 201);
}

#[tokio::test]
async fn malformed_names_are_rejected() {
    let world = World::on_sqlite(&[]).await;
    let too_long = "x".repeat(513);
    let names = [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "a/../b",
        "a/./b",
        "%2e",
        "%2e%2e",
        "a/%2E%2e/b",
        "a%2F%2Fb",
        "a%2F..%2Fb",
        "%ff",
        "%00",
        "a%0Ab",
        "%7F",
        "%C2%85",
        "100%",
        "%zz",
        "%4",
        &too_long,
    ];
    for name in names {
        for path in [format!("/v1/resources/{name}"), format!("/v1/fences/{name}")] {
            let answer = world.ask("PUT", &path, &[("Fencing-Token", "1")]).await;
            assert_eq!(answer.problem(), "400 malformed-name", "{path}");
        }
    }
    assert_eq!(
        world.ask("GET", "/v1/resources", &[]).await.json()["resources"],
        serde_json::json!([])
    );
}

on_all_stores!(&[] => odd_names_are_resources_of_their_own,);

async fn odd_names_are_resources_of_their_own(world: World) {
    let longest = "x".repeat(512);
    let names = [
        ("a/b", "a/b"),
        ("a%20b", "a b"),
        ("%7Bx%7D", "{x}"),
        ("100%25", "100%"),
        ("%252e", "%2e"),
        ("...", "..."),
        (".hidden", ".hidden"),
        ("a%3Fb%23c", "a?b#c"),
        ("%27%3B--", "';--"),
        ("%22%5C", "\"\\"),
        ("%F0%9F%90%A2", "🐢"),
        (longest.as_str(), longest.as_str()),
    ];
    for (path, name) in names {
        let path = format!("/v1/resources/{path}");
        let written = world.put(&path, &[("Fencing-Token", "1")], name).await;
        assert_eq!((written.status, &written.json()["resource"]), (201, &name.into()), "{path}");
    }
    for (path, name) in names {
        let read = world.ask("GET", &format!("/v1/resources/{path}"), &[]).await;
        assert_eq!(read.text(), name);
    }
    let slash = world.ask("GET", "/v1/resources/a%2Fb", &[]).await;
    assert_eq!(slash.text(), "a/b", "an encoded slash is a slash");
}

#[tokio::test]
async fn values_over_the_limit_are_rejected() {
    let world = World::on_sqlite(&["--max-value-bytes", "1000"]).await;
    let token = [("Fencing-Token", "1")];
    let answer = world.put("/v1/resources/r", &token, &"x".repeat(1001)).await;
    assert_eq!(answer.problem(), "413 value-too-large");
    assert_eq!(answer.json()["limit"], 1000);
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404, "nothing has happened");

    // A body that doesn't say how long it is.
    let chunked = format!(
        "PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nFencing-Token: 1\r\n\
         Transfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n",
        "x".repeat(0x3e9)
    );
    let answer = wire::send(world.server.url(), chunked.into_bytes()).await;
    assert_eq!(answer.problem(), "413 value-too-large");
    assert_eq!(world.put("/v1/resources/r", &token, &"x".repeat(1000)).await.status, 201);
}

#[tokio::test]
async fn a_value_of_a_mebibyte_is_accepted_and_one_byte_more_is_not() {
    let world = World::on_sqlite(&[]).await;
    let token = [("Fencing-Token", "1")];
    let value = "x".repeat(1 << 20);
    assert_eq!(world.put("/v1/resources/r", &token, &value).await.status, 201);
    assert_eq!(world.ask("GET", "/v1/resources/r", &[]).await.body.len(), 1 << 20);
    let answer = world.put("/v1/resources/r", &token, &(value + "x")).await;
    assert_eq!(answer.problem(), "413 value-too-large");
}

#[tokio::test]
async fn a_body_that_ends_early_changes_nothing() {
    let world = World::on_sqlite(&[]).await;
    let head = b"PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nContent-Length: 10\r\n\r\n";
    let mut connection = wire::connect(world.server.url()).await;
    connection.write_all(&[head.as_slice(), b"12345"].concat()).await.unwrap();
    connection.shutdown().await.unwrap();
    // The server has noticed once it has closed its side.
    let mut rest = Vec::new();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut rest);
    tokio::time::timeout(Duration::from_secs(10), end).await.unwrap().unwrap();
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404);
}

/// A server that is busy for a moment accepts none of them until then.
#[tokio::test]
async fn connections_of_a_burst_wait_until_they_are_accepted() {
    let mut world = World::on_sqlite(&[]).await;
    world.server.process().pause().await.unwrap();
    let connecting = (0..400).map(|_| wire::connect(world.server.url()));
    let connected = tokio::time::timeout(Duration::from_secs(20), join_all(connecting)).await;
    assert_eq!(connected.map(|all| all.len()), Ok(400));
    world.server.process().resume().unwrap();
}

#[tokio::test]
async fn a_thousand_requests_at_once_on_one_resource_are_all_decided() {
    let world = Arc::new(World::on_sqlite(&[]).await);
    let mut requests = tokio::task::JoinSet::new();
    for token in 1..=1000 {
        let world = world.clone();
        requests.spawn(async move {
            let token = token.to_string();
            world.put("/v1/resources/hot", &[("Fencing-Token", &token)], &token).await
        });
    }
    let mut accepted = Vec::new();
    for answer in requests.join_all().await {
        match answer.status {
            200 | 201 => {
                let json = answer.json();
                accepted.push((json["version"].as_u64().unwrap(), json["token"].as_u64().unwrap()));
            }
            _ => assert_eq!(answer.problem(), "412 stale-token"),
        }
    }
    accepted.sort_unstable();
    let versions: Vec<_> = accepted.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, (1..=accepted.len() as u64).collect::<Vec<_>>());
    assert!(accepted.is_sorted_by_key(|(_, token)| *token));
    assert_eq!(accepted.last().unwrap().1, 1000, "the highest token is never rejected");
    assert_eq!(world.ask("GET", "/v1/resources/hot", &[]).await.text(), "1000");
}

#[tokio::test]
async fn a_value_that_is_too_large_is_answered_while_it_is_sent() {
    let server = World::on_sqlite(&[]).await.server;
    let length = 8 << 20;
    let head = format!(
        "PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // All of it is sent before the answer is read.
    let sent = wire::send(server.url(), [head.as_bytes(), &vec![b'x'; length]].concat()).await;
    assert_eq!(sent.problem(), "413 value-too-large");

    // A client that asks first sends nothing.
    let asking = head.replace("Host: localhost", "Host: localhost\r\nExpect: 100-continue");
    assert_eq!(
        wire::send(server.url(), asking.into_bytes()).await.problem(),
        "413 value-too-large"
    );
}

#[tokio::test]
async fn parts_and_encodings_of_values_and_long_types_are_rejected() {
    let server = World::on_sqlite(&[]).await.server;
    let longest = "x".repeat(256);
    let too_long = "x".repeat(257);
    let cases = [
        ("Content-Range", "bytes 0-1/10", "400 malformed-request"),
        ("Content-Encoding", "gzip", "415 encoded-value"),
        ("Content-Encoding", "identity, gzip", "415 encoded-value"),
        ("Content-Type", &too_long, "400 malformed-request"),
    ];
    for (header, value, problem) in cases {
        let headers = [("Fencing-Token", "1"), (header, value)];
        let rejected = wire::request(server.url(), "PUT", "/v1/resources/r", &headers, "x").await;
        assert_eq!(rejected.problem(), problem, "{header}: {value}");
    }
    assert_eq!(wire::request(server.url(), "GET", "/v1/fences/r", &[], "").await.status, 404);
    // The control.
    for (header, value) in [("Content-Encoding", "identity"), ("Content-Type", &longest)] {
        let headers = [("Fencing-Token", "1"), (header, value)];
        let written = wire::request(server.url(), "PUT", "/v1/resources/r", &headers, "x").await;
        assert!([200, 201].contains(&written.status), "{header}: {value}");
    }
}

/// Otherwise a client could have the server hold a page for each long path, and read none of them.
#[tokio::test]
async fn problems_quote_only_the_beginning_of_what_a_client_sends() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let long = "x".repeat(8000);
    for (method, path, host, problem) in [
        ("GET", format!("/{long}"), "localhost", "404 not-found"),
        ("PATCH", format!("/v1/resources/{long}"), "localhost", "405 method-not-allowed"),
        ("GET", format!("/v1/resources?{long}=1"), "localhost", "400 malformed-request"),
        ("GET", "/livez".to_owned(), long.as_str(), "421 wrong-host"),
    ] {
        let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = wire::send(server.url(), text.into_bytes()).await;
        assert_eq!(answer.problem(), problem);
        let bytes = answer.body.len();
        assert!((200..2048).contains(&bytes), "{problem}: {bytes} bytes");
    }
}
