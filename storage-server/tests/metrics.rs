//! `/metrics`, and the dashboard and the alerts that are made of it.

mod ops;

use std::{collections::BTreeSet, fs, time::Duration};

use sqlx::{Connection, PgConnection, SqliteConnection};
use testbed::{StorageServer, wait::until_async};
use tokio::time::timeout;

use crate::{
    access::{Guarded, ask},
    connections::sending,
    database::{Database, get, offer},
    logs::is_logged,
    readiness::until_ready,
    wire,
};

const PATIENCE: Duration = Duration::from_secs(30);

const GUIDE: &str = include_str!("../../docs/storage-monitoring.md");

async fn scrape(url: &str) -> String {
    let answer = wire::request(url, "GET", "/metrics", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text()
}

/// The value of a series, which is written with its labels.
pub(crate) fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is in\n{text}")).parse().unwrap()
}

/// Makes one request of each kind.
async fn traffic(server: &StorageServer) {
    assert_eq!(offer(server, "PUT", "/v1/resources/secret", 34, "value").await.status, 201);
    assert_eq!(offer(server, "PUT", "/v1/resources/secret", 33, "value").await.status, 412);
    assert_eq!(get(server, "/v1/resources/secret").await.status, 200);
    assert_eq!(get(server, "/v1/fences/secret").await.status, 200);
    assert_eq!(get(server, "/secret").await.status, 404);
    assert_eq!(get(server, "/v1/resources/").await.status, 400);
    assert_eq!(offer(server, "SECRET", "/v1/resources/secret", 1, "").await.status, 405);
}

#[tokio::test]
async fn requests_are_counted_without_their_names() {
    let database = Database::sqlite();
    let server = database.serve(&["--max-connections", "77"]).await;
    let before = scrape(server.url()).await;
    assert_eq!(value(&before, "storage_server_rejections_total{reason=\"stale-token\"}"), 0.0);
    traffic(&server).await;
    until_ready(server.url(), 200).await;
    // A connection counts until the server has seen its end.
    let without_others = async {
        loop {
            let text = scrape(server.url()).await;
            if value(&text, "storage_server_connections") == 1.0 {
                break text;
            }
        }
    };
    let text = timeout(PATIENCE, without_others).await.expect("one connection");
    let name = "route=\"/v1/resources/{name}\"";
    for (series, expected) in [
        (format!("requests_total{{method=\"PUT\",{name},status=\"201\"}}"), 1.0),
        (format!("requests_total{{method=\"PUT\",{name},status=\"412\"}}"), 1.0),
        (format!("requests_total{{method=\"GET\",{name},status=\"200\"}}"), 1.0),
        (format!("requests_total{{method=\"other\",{name},status=\"405\"}}"), 1.0),
        ("requests_total{method=\"GET\",route=\"other\",status=\"404\"}".to_owned(), 1.0),
        (format!("request_duration_seconds_count{{method=\"PUT\",{name}}}"), 2.0),
        ("rejections_total{reason=\"stale-token\"}".to_owned(), 1.0),
        ("rejections_total{reason=\"malformed-name\"}".to_owned(), 1.0),
        ("rejections_total{reason=\"holder-conflict\"}".to_owned(), 0.0),
        ("cut_offs_total{reason=\"silent\"}".to_owned(), 0.0),
        ("batch_operations_count".to_owned(), 2.0),
        ("batch_operations_sum".to_owned(), 2.0),
        ("commit_duration_seconds_count".to_owned(), 1.0),
        ("queued_operations".to_owned(), 0.0),
        ("oldest_operation_seconds".to_owned(), 0.0),
        ("bytes_in_flight{part=\"small-bodies\"}".to_owned(), 0.0),
        ("max_bytes_in_flight{part=\"small-bodies\"}".to_owned(), f64::from(32 << 20)),
        ("connections".to_owned(), 1.0),
        ("max_connections".to_owned(), 77.0),
        ("database_up".to_owned(), 1.0),
        ("auth_file_valid".to_owned(), 1.0),
        ("tls_files_valid".to_owned(), 1.0),
        ("tls_certificate_expiry_timestamp_seconds".to_owned(), 0.0),
    ] {
        assert_eq!(value(&text, &format!("storage_server_{series}")), expected, "{series}");
    }
    assert!(!text.to_lowercase().contains("secret"), "{text}");
}

#[tokio::test]
async fn body_takes_bytes_until_it_is_there() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let head = b"PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n\
        Content-Length: 70000\r\n\r\nx";
    let half = sending(server.url(), head).await;
    let is_measured = async |bytes, connections| {
        let text = scrape(server.url()).await;
        let part = "storage_server_bytes_in_flight{part=\"large-bodies\"}";
        let open = value(&text, "storage_server_connections");
        Ok(value(&text, part) == bytes && open == connections)
    };
    until_async(PATIENCE, async || is_measured(70_000.0, 2.0).await).await.unwrap();
    drop(half);
    until_async(PATIENCE, async || is_measured(0.0, 1.0).await).await.unwrap();
}

/// A client that gives up is the first sign of a slow server.
#[tokio::test]
async fn operation_that_waits_is_measured_and_so_is_a_client_that_gives_up() {
    let database = Database::postgres().await;
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 1, "x").await.status, 201);
    let mut rival = PgConnection::connect(&database.url).await.unwrap();
    let mut rival = rival.begin().await.unwrap();
    sqlx::query("select from storage.resource for update").execute(&mut *rival).await.unwrap();
    let delete = b"DELETE /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 2\r\n\r\n";
    let waiting = sending(server.url(), delete).await;
    until_async(PATIENCE, async || {
        let text = scrape(server.url()).await;
        Ok(value(&text, "storage_server_queued_operations") == 1.0
            && value(&text, "storage_server_oldest_operation_seconds") > 0.1)
    })
    .await
    .unwrap();
    drop(waiting);
    let abandoned = "storage_server_requests_total{method=\"DELETE\",\
                     route=\"/v1/resources/{name}\",status=\"abandoned\"} 1\n";
    until_async(PATIENCE, async || Ok(scrape(server.url()).await.contains(abandoned)))
        .await
        .unwrap();
    rival.rollback().await.unwrap();
    until_async(PATIENCE, async || {
        let text = scrape(server.url()).await;
        Ok(value(&text, "storage_server_queued_operations") == 0.0)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn database_that_takes_no_writes_is_down() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let mut rival = SqliteConnection::connect(&database.url).await.unwrap();
    let up = async || value(&scrape(server.url()).await, "storage_server_database_up");
    until_async(PATIENCE, async || Ok(up().await == 1.0)).await.unwrap();
    sqlx::query("begin immediate").execute(&mut rival).await.unwrap();
    until_async(PATIENCE, async || Ok(up().await == 0.0)).await.unwrap();
    rival.close().await.unwrap();
    until_async(PATIENCE, async || Ok(up().await == 1.0)).await.unwrap();
}

#[tokio::test]
async fn only_operators_see_the_metrics_beside_the_resources() {
    let guarded = Guarded::new();
    let all = ["--prefix", "", "--allow", "read,write,claim,list"];
    let client = guarded.identity("client", &all).await;
    let operator = guarded.identity("operator", &["--prefix", "", "--allow", "operate"]).await;
    let server = guarded.serve().await;
    let seen = async |bearer| ask(&server, bearer, "GET", "/metrics", None).await;
    assert_eq!(seen("").await.problem(), "401 unauthenticated");
    assert_eq!(seen(&client).await.problem(), "403 forbidden");
    assert_eq!(seen(&operator).await.status, 200);

    let file = fs::read_to_string(guarded.auth_file()).unwrap();
    fs::write(guarded.auth_file(), format!("broken{file}")).unwrap();
    let is_broken =
        async || Ok(value(&seen(&operator).await.text(), "storage_server_auth_file_valid") == 0.0);
    until_async(PATIENCE, is_broken).await.unwrap();
}

#[tokio::test]
async fn metrics_of_their_own_address_need_no_identity() {
    let guarded = Guarded::new();
    let operator = guarded.identity("operator", &["--prefix", "", "--allow", "operate"]).await;
    let file = guarded.auth_file();
    let arguments = ["--auth-file", file.to_str().unwrap(), "--metrics-listen", "127.0.0.1:0"];
    let server = guarded.database.serve(&arguments).await;
    is_logged(&server, "/metrics").await;
    let log = server.log().unwrap();
    let url = log.split("metrics are on ").nth(1).and_then(|rest| rest.split("/metrics").next());
    let url = url.expect("the log has the address");
    let up = async || Ok(value(&scrape(url).await, "storage_server_database_up") == 1.0);
    until_async(PATIENCE, up).await.unwrap();
    // Nothing else is there, and the metrics are nowhere else.
    for path in ["/v1/resources", "/livez"] {
        let answer = wire::request(url, "GET", path, &[], "").await;
        assert_eq!(answer.problem(), "404 not-found", "{path}");
    }
    let elsewhere = ask(&server, &operator, "GET", "/metrics", None).await;
    assert_eq!(elsewhere.problem(), "404 not-found");
    // A page on the web reaches neither.
    let text = b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(wire::send(url, text.to_vec()).await.problem(), "421 wrong-host");
}

/// The families in a scrape, with their suffixes.
fn families(text: &str) -> BTreeSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap()).collect()
}

#[tokio::test]
async fn guide_lists_every_metric() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    // The request of a scrape is in the next one.
    scrape(server.url()).await;
    let text = scrape(server.url()).await;
    let table: BTreeSet<_> = GUIDE
        .lines()
        .filter_map(|line| line.strip_prefix("| `storage_server_"))
        .map(|row| row.split(['`', '{']).next().unwrap().trim_end_matches("_total"))
        .collect();
    let families = families(&text);
    let families = families.iter().map(|name| name.strip_prefix("storage_server_").unwrap());
    assert_eq!(table, families.collect());
    assert!(table.len() > 10);
}

#[tokio::test]
async fn metrics_have_the_format_that_accept_prefers_with_help_and_type_for_each_family() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    traffic(&server).await;
    let open_metrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let plain = "text/plain; version=0.0.4; charset=utf-8";
    for (accept, content_type, counters, end) in [
        ("text/plain", plain, "storage_server_requests_total", false),
        ("application/openmetrics-text", open_metrics, "storage_server_requests", true),
        ("*/*", open_metrics, "storage_server_requests", true),
    ] {
        let headers = [("Accept", accept)];
        let answer = wire::request(server.url(), "GET", "/metrics", &headers, "").await;
        assert_eq!(answer.header("content-type"), Some(content_type), "{accept}");
        let text = answer.text();
        assert!(text.contains(&format!("# TYPE {counters} counter\n")), "{accept}: {text}");
        assert!(text.contains(&format!("# HELP {counters} Requests")), "{accept}: {text}");
        assert_eq!(text.contains("# EOF"), end, "{accept}: {text}");
        assert_eq!(text.contains("# UNIT"), end, "{accept}: {text}");
        let families = |kind: &str| -> BTreeSet<String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(kind)?.split(' ').next());
            lines.map(str::to_owned).collect()
        };
        let typed = families("# TYPE ");
        assert_eq!(typed, families("# HELP "), "{accept}");
        for series in text.lines().filter(|line| !line.starts_with('#')) {
            let name = series.split(['{', ' ']).next().unwrap();
            let parts = ["", "_total", "_bucket", "_sum", "_count"];
            let mut names = parts.iter().filter_map(|part| name.strip_suffix(part));
            assert!(names.any(|name| typed.contains(name)), "{accept}: {series}");
        }
    }
}
