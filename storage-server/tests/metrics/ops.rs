//! The dashboard and the alerts, in a real Prometheus.

use std::{
    collections::BTreeSet,
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;
use testbed::{
    StorageServer, installed,
    process::Process,
    wait::{until, until_async},
};

use super::{PATIENCE, traffic};
use crate::{database::Database, wire};

const PACKAGE: &str = "the package prometheus (brew: prometheus)";
/// How often another port is tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

fn ops(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ops").join(file)
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
