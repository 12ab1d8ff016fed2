//! `lab bench`: that it runs, and tells what it is to tell. How large a figure is depends on the
//! machine.

use std::process::Command;

use serde_json::Value;

#[tokio::test]
async fn bench_of_locks_tells_every_figure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["bench", "locks", "--json", "--rounds", "1", "--acquires", "3"]);
    command.args([
        "--handovers",
        "3",
        "--polled-handovers",
        "1",
        "--leases",
        "20",
        "--seconds",
        "1",
    ]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (said, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{error}");

    let report: Value = serde_json::from_str(&said).unwrap();
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
