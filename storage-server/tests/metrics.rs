//! `/metrics`, and the dashboard and the alerts that are made of it.

use std::{
    collections::BTreeSet,
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::{
    StorageServer, installed,
    process::Process,
    wait::{until, until_async},
};
use tokio::time::timeout;

use crate::{
    access::{Guarded, ask},
    connections::{is_logged, sending},
    database::{Database, get, offer},
    readiness::until_ready,
    wire,
};

const PATIENCE: Duration = Duration::from_secs(30);
const PACKAGE: &str = "the package prometheus (brew: prometheus)";
const GUIDE: &str = include_str!("../../docs/storage-monitoring.md");
/// How often another port is tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

fn ops(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ops").join(file)
}

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
    assert_eq!(value(&before, "storage_server_refusals_total{reason=\"stale-token\"}"), 0.0);
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
        ("refusals_total{reason=\"stale-token\"}".to_owned(), 1.0),
        ("refusals_total{reason=\"malformed-name\"}".to_owned(), 1.0),
        ("refusals_total{reason=\"holder-conflict\"}".to_owned(), 0.0),
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

fn promtool(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(installed("promtool", &[], PACKAGE).unwrap());
    command.args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn every_alert_fires_for_its_reason() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let rules = fs::read_to_string(ops("alerts.yaml")).unwrap();
    fs::copy(ops("alerts.test.yaml"), folder.path().join("alerts.test.yaml")).unwrap();
    let is_right = |rules: &str| {
        fs::write(folder.path().join("alerts.yaml"), rules).unwrap();
        let output = promtool(&["test", "rules", "alerts.test.yaml"], folder.path());
        output.status.success()
    };
    assert!(is_right(&rules));
    // The control: with any other threshold, it is noticed.
    let thresholds =
        ["== 0", "> 5", "> 3500", "> 1", "> 0.01", "> 0.75", "> 0.9", "> 0", "< 1209600"];
    let mut changed = 0;
    for threshold in thresholds {
        for (at, _) in rules.match_indices(&format!("{threshold}\n")) {
            let (before, after) = rules.split_at(at);
            let other = after.replacen(threshold, "> 1000000", 1);
            assert!(!is_right(&format!("{before}{other}")), "{threshold} at {at}");
            changed += 1;
        }
    }
    assert_eq!(changed, rules.matches("- alert: ").count());
}

/// A private Prometheus that asks one server every second.
struct Prometheus {
    _process: Process,
    _folder: TempDir,
    url: String,
}

impl Prometheus {
    async fn start(server: &StorageServer) -> Self {
        let program = installed("prometheus", &[], PACKAGE).unwrap();
        for _ in 0..PORT_ATTEMPTS {
            let folder = TempDir::with_prefix("fenced-").unwrap();
            let config = format!(
                "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
                 rule_files: [{:?}]\n\
                 scrape_configs:\n\
                 - {{job_name: storage-server, static_configs: [{{targets: [\"{}\"]}}]}}\n",
                ops("alerts.yaml"),
                server.address()
            );
            fs::write(folder.path().join("prometheus.yaml"), config).unwrap();
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new(&program);
            command.args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]);
            command.arg(format!("--web.listen-address={free}")).current_dir(folder.path());
            let mut process = Process::spawn("prometheus", &command, folder.path()).unwrap();
            let mut has_ended = false;
            until(PATIENCE, || {
                has_ended = process.has_ended()?;
                Ok(has_ended || TcpStream::connect(free).is_ok())
            })
            .await
            .unwrap();
            if !has_ended {
                let url = format!("http://{free}");
                until_async(PATIENCE, async || {
                    let request = b"GET /-/ready HTTP/1.0\r\n\r\n";
                    Ok(wire::send(&url, request.to_vec()).await.status == 200)
                })
                .await
                .unwrap();
                return Self { _process: process, _folder: folder, url };
            }
        }
        panic!("there is no free port");
    }

    /// How many series an expression has now.
    async fn series(&self, expression: &str) -> usize {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n");
        let answer = wire::send(&self.url, request.into_bytes()).await;
        assert_eq!(answer.status, 200, "{expression}: {}", answer.text());
        answer.json()["data"]["result"].as_array().unwrap().len()
    }
}

/// The expressions in the dashboard.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "1m"))
        .collect()
}

/// The metrics that an expression names.
fn named(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| word.starts_with("storage_")).collect()
}

#[tokio::test]
async fn dashboard_and_alerts_use_only_metrics_that_exist() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    traffic(&server).await;
    let prometheus = Prometheus::start(&server).await;
    let dashboard = fs::read(ops("dashboard.json")).unwrap();
    let shown = expressions(&serde_json::from_slice(&dashboard).unwrap());
    assert!(shown.len() > 10);
    let rules = fs::read_to_string(ops("alerts.yaml")).unwrap();
    let wanted = shown.iter().map(String::as_str).chain(named(&rules)).chain(["up"]);
    for expression in wanted {
        // A rate needs two scrapes, and traffic between them.
        until_async(PATIENCE, async || Ok(prometheus.series(expression).await > 0))
            .await
            .unwrap_or_else(|_| panic!("{expression} is empty"));
    }
    // The control: Prometheus has nothing under another name.
    for expression in
        ["storage_server_request_total", "storage_server_requests_total{outcome!=\"\"}"]
    {
        assert_eq!(prometheus.series(expression).await, 0, "{expression}");
    }
}
