//! Rows that no server has written: they fail alone, and can be repaired.

use testbed::StorageServer;
use tokio::task::JoinSet;

use crate::{
    database::{Database, get, offer, on_empty_databases},
    wire,
};

on_empty_databases! {
    unreadable_row_fails_alone,
    list_leaves_unreadable_rows_out,
    unreadable_row_is_repaired_by_fence_set,
    unreadable_value_fails_alone_and_is_replaced_by_a_write,
    row_whose_version_cannot_rise_is_unreadable,
    database_rejects_rows_that_no_server_can_read,
}

/// What a repair by hand may leave behind. The guards would reject it.
const BY_HAND: &str = "
    insert into storage.resource
        (resource, token, holder, version, content_type, bytes, value_token, value_holder)
    values
        ('bad/holder', 5, 'repaired by hand', 1, 'text/plain', '1', 5, ''),
        ('bad/value', 5, '', 1, 'text/plain', '1', 5, 'repaired by hand'),
        ('bad/no-token', null, 'somebody', 1, 'text/plain', '1', null, '');";

const BAD: [&str; 3] = ["bad/holder", "bad/value", "bad/no-token"];

async fn repaired_by_hand(database: &Database) -> StorageServer {
    let by_hand = match database.postgres {
        Some(_) => BY_HAND.to_owned(),
        None => BY_HAND.replace("'1'", "x'31'"),
    };
    database.insert_by_hand(&by_hand).await;
    database.serve(&[]).await
}

async fn unreadable_row_fails_alone(database: Database) {
    let server = repaired_by_hand(&database).await;
    for round in 1..=5 {
        let mut requests = JoinSet::new();
        for n in 0..60 {
            let (url, name) = (
                server.url().to_owned(),
                match n % 3 {
                    0 => BAD[n / 3 % 3].to_owned(),
                    _ => format!("good/{n}"),
                },
            );
            requests.spawn(async move {
                let (path, token) = (format!("/v1/resources/{name}"), (10 + round).to_string());
                let headers = [("Fencing-Token", token.as_str())];
                (name, wire::request(&url, "PUT", &path, &headers, "x").await)
            });
        }
        for (name, answer) in requests.join_all().await {
            if name.starts_with("good/") {
                assert!(answer.status < 300, "{name}: {}", answer.text());
            } else {
                assert_unreadable(&answer, &name);
            }
        }
    }
    for name in BAD {
        assert_unreadable(&get(&server, &format!("/v1/resources/{name}")).await, name);
        assert_unreadable(&get(&server, &format!("/v1/fences/{name}")).await, name);
        let path = format!("/v1/resources/{name}");
        assert_unreadable(&offer(&server, "GET", &path, 10, "").await, name);
        let path = format!("/v1/fences/{name}");
        assert_unreadable(&offer(&server, "PUT", &path, 10, "").await, name);
    }
}

fn assert_unreadable(answer: &wire::Answer, name: &str) {
    assert_unreadable_until(answer, name, "repair it with `storage-server fence set`");
}

fn assert_unreadable_until(answer: &wire::Answer, name: &str, repair: &str) {
    assert_eq!(answer.problem(), "503 unavailable");
    let (json, text) = (answer.json(), answer.text());
    assert_eq!(json["outcome"], "none", "{text}");
    let detail = json["detail"].as_str().unwrap();
    assert!(detail.contains(name) && detail.contains(repair), "{detail}");
    assert!(!text.contains("by hand") && !text.contains("somebody"), "no holder is shown: {text}");
}

/// A page that became shorter would look like the last one.
async fn list_leaves_unreadable_rows_out(database: Database) {
    let bytes = if database.postgres.is_some() { "'1'" } else { "x'31'" };
    let (mut names, mut inserts) = (Vec::new(), String::new());
    for n in 0..12 {
        // A control character, in six rows of twelve.
        let name = if n % 4 < 2 { format!("n{n:02}\n") } else { format!("n{n:02}") };
        inserts += &format!(
            "insert into storage.resource (resource, token, holder, version, content_type, bytes,
                value_token, value_holder)
            values ('{name}', 1, '', 1, 'text/plain', {bytes}, 1, '');"
        );
        names.push(name);
    }
    database.insert_by_hand(&inserts).await;
    names.retain(|name| !name.ends_with('\n'));
    let server = database.serve(&[]).await;
    for limit in [1, 2, 3, 100] {
        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/resources?limit={limit}&after={after}");
            let page = get(&server, &path).await.json();
            let page_names = page["resources"].as_array().unwrap().iter();
            listed.extend(page_names.map(|it| it["resource"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(listed, names, "limit {limit}");
    }
    crate::logs::is_logged(&server, "left out of a list").await;
}

async fn unreadable_row_is_repaired_by_fence_set(database: Database) {
    let server = repaired_by_hand(&database).await;
    for name in BAD {
        let shown = database.run(&["fence", "show", name]).await.printed();
        assert!(shown.contains("unreadable"), "{shown}");
        database
            .run(&["fence", "set", name, "--token", "7", "--holder", "a-holder"])
            .await
            .printed();
        let value = get(&server, &format!("/v1/resources/{name}")).await;
        assert_eq!((value.status, value.text().as_str()), (200, "1"), "the value stays");
        let path = format!("/v1/resources/{name}");
        assert_eq!(offer(&server, "PUT", &path, 6, "x").await.problem(), "412 stale-token");
        assert_eq!(offer(&server, "PUT", &path, 7, "x").await.problem(), "409 holder-conflict");
        assert_eq!(offer(&server, "PUT", &path, 8, "x").await.status, 200);
    }
}

async fn unreadable_value_fails_alone_and_is_replaced_by_a_write(database: Database) {
    let server = database.serve(&[]).await;
    // No check rejects these rows.
    let (unchecked, byte, no_ascii) = match database.postgres {
        Some(_) => ("set storage.is_server = on", "'1'", "'text/\u{e9}'"),
        None => (
            "pragma ignore_check_constraints = on; drop trigger storage_resource_insert",
            "x'31'",
            // Not even UTF-8.
            "cast(x'ff' as text)",
        ),
    };
    let by_hand = format!(
        "{unchecked};
        insert into storage.resource
            (resource, token, holder, version, content_type, bytes, value_token, value_holder)
        values
            ('bad/no-type', 5, '', 1, null, {byte}, 5, ''),
            ('bad/type', 5, '', 1, 'text/\u{1}', {byte}, 5, ''),
            ('bad/no-ascii', 5, '', 1, {no_ascii}, {byte}, 5, '');"
    );
    database.execute(&by_hand).await.unwrap();
    for name in ["bad/no-type", "bad/type", "bad/no-ascii"] {
        let path = format!("/v1/resources/{name}");
        // SQLite checks that a row with a value has a type, also if a claim leaves both as they are.
        if name != "bad/no-type" {
            let claimed = offer(&server, "PUT", &format!("/v1/fences/{name}"), 6, "").await;
            assert_eq!(claimed.status, 200, "{name}: {}", claimed.text());
        }
        let repair = "write the value again";
        assert_unreadable_until(&get(&server, &path).await, name, repair);
        assert_unreadable_until(&offer(&server, "GET", &path, 6, "").await, name, repair);
        assert_eq!(offer(&server, "PUT", "/v1/resources/good", 6, "x").await.status / 100, 2);
        assert_eq!(offer(&server, "PUT", &path, 6, "new").await.status, 200);
        assert_eq!(offer(&server, "GET", &path, 6, "").await.text(), "new");
    }
}

async fn row_whose_version_cannot_rise_is_unreadable(database: Database) {
    let byte = if database.postgres.is_some() { "'1'" } else { "x'31'" };
    let by_hand = format!(
        "insert into storage.resource
            (resource, token, holder, version, content_type, bytes, value_token, value_holder)
        values ('bad/version', 5, '', 9223372036854775807, 'text/plain', {byte}, 5, '')"
    );
    database.insert_by_hand(&by_hand).await;
    let server = database.serve(&[]).await;
    for (method, path) in [
        ("GET", "/v1/resources/bad/version"),
        ("PUT", "/v1/resources/bad/version"),
        ("DELETE", "/v1/resources/bad/version"),
        ("PUT", "/v1/fences/bad/version"),
    ] {
        let answer = offer(&server, method, path, 6, "").await;
        assert_unreadable_until(&answer, "bad/version", "set its version");
        assert_eq!(offer(&server, "PUT", "/v1/resources/good", 6, "x").await.status / 100, 2);
    }
    let listed = get(&server, "/v1/resources").await.json();
    assert_eq!(listed["resources"].as_array().unwrap().len(), 1, "{listed}");
    let highest_that_rises = "update storage.resource set version = 4611686018427387903
        where resource = 'bad/version'";
    database.execute(highest_that_rises).await.unwrap();
    for _ in 0..2 {
        let written = offer(&server, "PUT", "/v1/resources/bad/version", 6, "x").await;
        assert_eq!(written.status, 200, "{}", written.text());
    }
}

async fn database_rejects_rows_that_no_server_can_read(database: Database) {
    let server = database.serve(&[]).await;
    offer(&server, "PUT", "/v1/resources/r", 5, "x").await;
    let bad = [
        "update storage.resource set holder = 'a b'",
        "update storage.resource set holder = '\u{17c}'",
        "update storage.resource set value_holder = 'a b'",
        "update storage.resource set token = null, holder = 'a'",
        "update storage.resource set value_token = null, value_holder = 'a'",
        "update storage.resource set token = 0",
        "update storage.resource set value_token = 0",
        "update storage.resource set version = -1",
        "update storage.resource set content_type = null",
        "update storage.resource set value_holder = null",
        "update storage.resource set bytes = null",
        "update storage.resource set resource = ''",
        "insert into storage.resource (resource, token, holder, version) values ('s', 1, 'a b', 0)",
        "insert into storage.resource (resource, token, holder, version) values ('', 1, '', 0)",
        "insert into storage.resource (resource, token, holder, version)
            values ('s', 1, '', 4611686018427387904)",
    ];
    let too_long = format!("update storage.resource set holder = '{}'", "x".repeat(129));
    let byte = if database.postgres.is_some() { "'1'" } else { "x'31'" };
    let bad_type = format!(
        "insert into storage.resource
            (resource, token, holder, version, content_type, bytes, value_token, value_holder)
        values ('s', 1, '', 1, 'text/\u{1}', {byte}, 1, '')"
    );
    for sql in bad.into_iter().chain([too_long.as_str(), bad_type.as_str()]) {
        let error = database.execute(sql).await.expect_err(sql).to_string();
        let named = match database.postgres {
            Some(_) => ["resource_is_readable"; 2],
            None => ["no server can read", "CHECK constraint failed"],
        };
        assert!(named.iter().any(|named| error.contains(named)), "{sql}: {error}");
    }
    let good = format!("update storage.resource set holder = '{}'", "~".repeat(128));
    database.execute(&good).await.unwrap();
    assert_eq!(get(&server, "/v1/fences/r").await.status, 200);
}
