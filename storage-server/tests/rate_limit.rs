//! The limit on the requests of each client.

use testbed::StorageServer;

use crate::{
    access::{Guarded, ask},
    database::{Database, get},
    wire::Answer,
};

/// One request in a second, which no test can send too slowly by being slow itself.
const ONE: [&str; 2] = ["--requests-per-second", "1"];

/// Sends requests until one is rejected: two within a second are enough.
pub(crate) async fn rejection(server: &StorageServer, bearer: &str) -> Answer {
    for _ in 0..1_000 {
        let answer = ask(server, bearer, "GET", "/v1/fences/r", None).await;
        if answer.status == 429 {
            return answer;
        }
    }
    panic!("no request was rejected");
}

#[tokio::test]
async fn requests_beyond_the_limit_are_rejected() {
    let database = Database::sqlite();
    let server = database.serve(&ONE).await;
    let rejected = rejection(&server, "").await;
    assert_eq!(rejected.problem(), "429 too-many-requests");
    assert_eq!(rejected.header("retry-after"), Some("1"));
    assert_eq!(rejected.json()["outcome"], "none");
    for _ in 0..20 {
        for path in ["/livez", "/readyz", "/problems"] {
            assert_eq!(get(&server, path).await.status, 200, "{path}");
        }
    }
    // It is a limit for a second, not for ever.
    let again = async || Ok(get(&server, "/v1/fences/r").await.status == 404);
    testbed::wait::until_async(crate::logs::PATIENCE, again).await.unwrap();

    // The control: without the option, there is no limit.
    let server = database.serve(&[]).await;
    for _ in 0..50 {
        assert_eq!(get(&server, "/v1/fences/r").await.status, 404);
    }
}

#[tokio::test]
async fn requests_that_the_server_does_not_serve_count_too() {
    let database = Database::sqlite();
    for (method, path, status) in [("GET", "/none", 404), ("PATCH", "/v1/fences/r", 405)] {
        let server = database.serve(&ONE).await;
        let first = ask(&server, "", method, path, None).await;
        assert_eq!(first.status, status, "{path}");
        let is_rejected = async || Ok(ask(&server, "", method, path, None).await.status == 429);
        testbed::wait::until_async(crate::logs::PATIENCE, is_rejected).await.unwrap();
    }
}

#[tokio::test]
async fn wrong_tokens_count_wherever_they_are_sent() {
    let guarded = Guarded::new();
    let operator = guarded.identity("operator", &["--prefix", "", "--allow", "operate"]).await;
    let (file, audit_log) = (guarded.auth_file(), guarded.database.file("audit.jsonl"));
    let files = ["--auth-file", file.to_str().unwrap(), "--audit-log", audit_log.to_str().unwrap()];
    let server = guarded.database.serve(&[&ONE[..], &files].concat()).await;
    let try_wrong = async || ask(&server, "wrong", "GET", "/readyz", None).await;
    let wrong = try_wrong().await;
    assert_eq!(wrong.problem(), "401 unauthenticated");
    assert_eq!(wrong.header("www-authenticate"), Some("Bearer"));
    let is_rejected = async || Ok(try_wrong().await.status == 429);
    testbed::wait::until_async(crate::logs::PATIENCE, is_rejected).await.unwrap();
    // The controls: these are neither limited nor rejected.
    for _ in 0..20 {
        assert_eq!(get(&server, "/readyz").await.status, 200);
        assert_eq!(ask(&server, &operator, "GET", "/readyz", None).await.status, 200);
    }
    for problem in ["unauthenticated", "too-many-requests"] {
        let problem = format!("\"problem\":\"{problem}\"");
        let is_there = || Ok(std::fs::read_to_string(&audit_log)?.contains(&problem));
        testbed::wait::until(crate::logs::PATIENCE, is_there).await.unwrap();
    }
}

#[tokio::test]
async fn each_identity_has_the_limit_for_itself() {
    let guarded = Guarded::new();
    let read = ["--prefix", "", "--allow", "read"];
    let (busy, calm) =
        (guarded.identity("busy", &read).await, guarded.identity("calm", &read).await);
    let file = guarded.auth_file();
    let arguments = [&ONE[..], &["--auth-file", file.to_str().unwrap()]].concat();
    let server = guarded.database.serve(&arguments).await;
    assert_eq!(ask(&server, &calm, "GET", "/v1/fences/r", None).await.status, 404);
    // Clients without an identity, which all have the same address, use up nothing of the others.
    rejection(&server, "unknown").await;
    rejection(&server, &busy).await;
    let calm_again =
        async || Ok(ask(&server, &calm, "GET", "/v1/fences/r", None).await.status == 404);
    testbed::wait::until_async(crate::logs::PATIENCE, calm_again).await.unwrap();
}
