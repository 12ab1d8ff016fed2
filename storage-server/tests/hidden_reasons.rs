//! What is wrong with the database is for operators: other clients see only that there is no decision.

use std::fs;

use crate::{access::Guarded, logs::is_logged, wire};

/// Whether a text says why the database can't be used: a read fails, or a transaction.
fn has_reason(text: &str) -> bool {
    ["the database can't be reached", "was deleted or replaced"].iter().any(|it| text.contains(it))
}

#[tokio::test]
async fn only_operators_see_what_is_wrong_with_the_database() {
    let guarded = Guarded::new();
    let all = ["--prefix", "", "--allow", "read,write,claim,list"];
    let client = guarded.identity("client", &all).await;
    let operator = ["--prefix", "", "--allow", "read,write,claim,list,operate"];
    let operator = guarded.identity("operator", &operator).await;
    let server = guarded.serve().await;
    fs::remove_file(guarded.database.file("fenced.db")).unwrap();
    let transaction = r#"{"writes": [{"resource": "r", "token": 1, "value": null}]}"#;
    for (number, (method, path, body)) in [
        ("PUT", "/v1/resources/r", "x"),
        ("DELETE", "/v1/resources/r", ""),
        ("GET", "/v1/resources/r", ""),
        ("GET", "/v1/resources", ""),
        ("PUT", "/v1/fences/r", ""),
        ("GET", "/v1/fences/r", ""),
        ("POST", "/v1/transactions", transaction),
    ]
    .into_iter()
    .enumerate()
    {
        let detail = async |bearer: &str, id: &str| {
            let authorization = format!("Bearer {bearer}");
            let mut headers = vec![("Authorization", authorization.as_str()), ("X-Request-Id", id)];
            if method != "GET" {
                headers.push(("Fencing-Token", "1"));
            }
            if method == "POST" {
                headers.push(("Content-Type", "application/json"));
            }
            let answer = wire::request(server.url(), method, path, &headers, body).await;
            assert_eq!(answer.problem(), "503 unavailable", "{method} {path}");
            assert_eq!(answer.header("retry-after"), Some("1"));
            let json = answer.json();
            assert!(json["outcome"].is_string(), "{json}");
            json["detail"].as_str().unwrap().to_owned()
        };
        let id = format!("hidden-{number}");
        let seen = detail(&client, &id).await;
        assert!(!has_reason(&seen) && !seen.contains("database"), "{method} {path}: {seen}");
        let problem = format!("request{{request_id={id:?}}}: storage_server::http::problem");
        is_logged(&server, &problem).await;
        let log = server.log().unwrap();
        let line = log.lines().find(|line| line.contains(&problem));
        assert!(line.is_some_and(has_reason), "{method} {path}: {log}");
        // The control: an operator sees it.
        let seen = detail(&operator, "operator").await;
        assert!(has_reason(&seen), "{method} {path}: {seen}");
    }
}
