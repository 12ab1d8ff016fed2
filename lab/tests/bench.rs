//! `lab bench`: that it runs, and tells what it is to tell. How large a figure is depends on the
//! machine.

use std::process::Command;

use serde_json::Value;

#[tokio::test]
async fn bench_of_locks_tells_every_figure() {
    let mut arguments = vec!["locks", "--rounds", "1", "--acquires", "3", "--handovers", "3"];
    arguments.extend(["--polled-handovers", "1", "--leases", "20", "--seconds", "1"]);
    let report = report(&arguments).await;
    let lines = |kind: &str| report[kind].as_array().unwrap().clone();
    assert_eq!((lines("uncontended").len(), lines("handovers").len()), (8, 10));
    for line in [lines("uncontended"), lines("handovers")].concat() {
        for figure in ["count", "p50_us", "p99_us", "p50_pings", "p99_pings", "commands", "reads"] {
            assert!(line[figure].as_f64().unwrap() > 0.0, "{figure} of {line}");
        }
    }
    for figure in ["taken", "relied_on", "renewals"] {
        assert!(report["leases"][figure].as_f64().unwrap() > 0.0, "{figure}");
    }
    for target in lines("targets") {
        assert!(target["measured"].as_f64().unwrap().is_finite(), "{target}");
    }
}

#[tokio::test]
async fn bench_of_redlock_tells_every_figure() {
    let mut arguments = vec!["redlock", "--rounds", "1", "--acquires", "20"];
    arguments.extend(["--waiting-acquires", "1"]);
    let report = report(&arguments).await;
    let lines = |kind: &str| report[kind].as_array().unwrap().clone();
    assert_eq!((lines("all_up").len(), lines("one_hung").len()), (6, 3));
    for line in [lines("all_up"), lines("one_hung")].concat() {
        for figure in ["count", "p50_us", "p99_us"] {
            assert!(line[figure].as_f64().unwrap() > 0.0, "{figure} of {line}");
        }
    }
    for line in lines("all_up") {
        for figure in ["commands_per_node", "evalshas_per_node", "reads_per_node"] {
            assert!(line[figure].as_f64().unwrap() > 0.0, "{figure} of {line}");
        }
    }
    assert!(report["back_within_ms"].as_f64().unwrap() > 0.0);
    for target in lines("targets") {
        assert!(target["measured"].as_f64().unwrap().is_finite(), "{target}");
    }
}

/// Runs a bench, and reads what it reports.
async fn report(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.arg("bench").args(arguments).arg("--json");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (said, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{error}");
    serde_json::from_str(&said).unwrap()
}
