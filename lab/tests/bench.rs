//! `lab bench`: it runs, and reports every figure. The size of a figure depends on the machine.

use std::process::Command;

use serde_json::Value;

#[tokio::test]
async fn bench_of_locks_reports_every_figure() {
    let mut arguments = vec!["locks", "--rounds", "1", "--acquires", "3", "--handovers", "3"];
    arguments.extend(["--polled-handovers", "1", "--leases", "20", "--seconds", "1"]);
    let report = report(&arguments).await;
    let figures = ["count", "p50_us", "p99_us", "p50_pings", "p99_pings", "commands", "reads"];
    assert_figures(&report["uncontended"], 8, &figures);
    assert_figures(&report["handovers"], 10, &figures);
    for figure in ["taken", "relied_on", "renewals"] {
        assert!(report["leases"][figure].as_f64().unwrap() > 0.0, "{figure}");
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

/// Runs a bench, checks that it measured its goals, and returns its report.
async fn report(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.arg("bench").args(arguments).arg("--json");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    for goal in report["targets"].as_array().unwrap() {
        assert!(goal["measured"].as_f64().unwrap().is_finite(), "{goal}");
    }
    report
}
