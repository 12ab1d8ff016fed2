//! `lab bench`: it runs, and reports every figure. The size of a figure depends on the machine.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::test]
async fn bench_of_locks_in_redis_reports_every_figure() {
    let mut arguments = vec!["--acquires", "3", "--handovers", "3", "--polled-handovers", "1"];
    arguments.extend(["--leases", "20", "--seconds", "1"]);
    let report = report_of_locks("redis", &arguments).await;
    let figures = ["count", "p50_us", "p99_us", "p50_pings", "p99_pings", "commands", "reads"];
    assert_figures(&report["uncontended"], 8, &figures);
    assert_figures(&report["handovers"], 10, &figures);
    assert_leases(&report["leases"]);
}

#[tokio::test]
async fn bench_of_locks_in_etcd_reports_every_figure() {
    assert_durable_figures("etcd", 5).await;
}

#[tokio::test]
async fn bench_of_locks_in_zookeeper_reports_every_figure() {
    assert_durable_figures("zookeeper", 5).await;
}

#[tokio::test]
async fn bench_of_locks_in_postgres_reports_every_figure() {
    assert_durable_figures("postgres", 4).await;
}

#[tokio::test]
async fn bench_of_locks_in_mariadb_reports_every_figure() {
    assert_durable_figures("mariadb", 3).await;
}

#[tokio::test]
async fn bench_of_locks_in_sqlite_reports_every_figure() {
    assert_durable_figures("sqlite", 3).await;
}

/// Runs the bench of a service whose answers are durable, and checks that it has so many subjects
/// without waiters.
async fn assert_durable_figures(service: &str, uncontended: usize) {
    let mut arguments = vec!["--acquires", "3", "--handovers", "2", "--waiters", "10"];
    arguments.extend(["--leases", "20", "--seconds", "6"]);
    let report = report_of_locks(service, &arguments).await;
    assert_leases(&report["leases"]);
    let slow_commits = cfg!(target_os = "linux").then(|| &report["slow_commits"]);
    for report in [&report].into_iter().chain(slow_commits) {
        assert_figures(&report["uncontended"], uncontended, &["count", "p50_us", "p50_of_least"]);
        assert!(report["uncontended"][1]["commands"].as_f64().unwrap() > 0.0, "{report}");
        assert_figures(&report["handovers"], 4, &["count", "p50_us", "p50_of_least", "commands"]);
        assert_goals(report);
    }
}

#[tokio::test]
async fn bench_of_redlock_reports_every_figure() {
    let mut arguments = vec!["redlock", "--rounds", "1", "--acquires", "20"];
    arguments.extend(["--waiting-acquires", "1"]);
    let report = report(&arguments).await;
    assert_figures(&report["all_up"], 6, &["count", "p50_us", "p99_us"]);
    assert_figures(&report["one_hung"], 3, &["count", "p50_us", "p99_us"]);
    let work = ["commands_per_node", "evalshas_per_node", "reads_per_node"];
    assert_figures(&report["all_up"], 6, &work);
    assert!(report["back_within_ms"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn bench_that_is_stopped_has_printed_the_figures_of_its_first_round() {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["bench", "redlock", "--rounds", "1000", "--acquires", "10000"]);
    let mut bench =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let first = "redlock, round 1 of 1000: 1 node: acquire, token, release: ";
    let figure = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(" us"));
    assert!(figure.unwrap_or(&line).parse::<f64>().is_ok_and(|us| us > 0.0), "{line}");
    let id = Pid::from_raw(bench.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    let output = bench.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]));
}

/// Checks that so many rows have all of these figures.
fn assert_figures(rows: &Value, count: usize, figures: &[&str]) {
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), count);
    for row in rows {
        for figure in figures {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
}

/// All leases are held in the end. A file of SQLite has no connections, and counts no requests.
fn assert_leases(leases: &Value) {
    assert_eq!((&leases["taken"], &leases["relied_on"]), (&json!(20), &json!(20)), "{leases}");
    if leases["requests_per_second"].is_null() {
        return;
    }
    for figure in ["connections", "requests_per_second"] {
        assert!(leases[figure].as_f64().unwrap() > 0.0, "{figure} of {leases}");
    }
}

/// Runs the bench of one lock service, and returns its report.
async fn report_of_locks(service: &str, arguments: &[&str]) -> Value {
    let arguments = [&["locks", "--service", service, "--rounds", "1"], arguments].concat();
    let mut report = run(&arguments).await;
    let mut report = report["services"][0].take();
    assert_eq!(report["service"].take(), service);
    assert_goals(&report);
    report
}

/// Runs a bench, checks that it measured its goals, and returns its report.
async fn report(arguments: &[&str]) -> Value {
    let report = run(arguments).await;
    assert_goals(&report);
    report
}

fn assert_goals(report: &Value) {
    for goal in report["targets"].as_array().unwrap() {
        assert!(goal["measured"].as_f64().is_some_and(f64::is_finite), "{goal} of {report}");
    }
}

/// Runs a bench, and returns its report.
async fn run(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    // Commits can be made slow on a disk only: MariaDB never waits for one if its log is in memory.
    command.arg("bench").args(arguments).arg("--json").env_remove("TMPDIR");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap()
}
