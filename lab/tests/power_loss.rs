//! `lab power-loss`: nothing is lost with the storage server's settings, and something is with each
//! careless one.

use std::process::Command;

use serde_json::Value;

#[tokio::test]
async fn acknowledged_writes_survive_power_losses_unless_a_setting_is_careless() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["power-loss", "--losses", "2", "--json"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|out| String::from_utf8(out).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");

    let report: Value = serde_json::from_str(&stdout).unwrap();
    let mut settings = Vec::new();
    for figures in report["figures"].as_array().unwrap() {
        let count = |member: &str| figures[member].as_u64().unwrap();
        let setting = figures["setting"].as_str().unwrap();
        // After a crash, 8 clients repeat their last claims, twice.
        let expected = if setting.starts_with("sqlite-crash") { 16 } else { 200 };
        assert!(count("acknowledged") >= expected, "{figures}");
        if ["sqlite-full", "sqlite-crash", "postgres-on"].contains(&setting) {
            assert_eq!((count("lost"), count("lowered_fences")), (0, 0), "{figures}");
        } else {
            assert!(count("lost") > 0, "{figures}");
            assert!(count("lowered_fences") > 0, "{figures}");
        }
        settings.push(setting);
    }
    insta::assert_snapshot!(settings.join(" "), @"sqlite-full sqlite-normal sqlite-off sqlite-crash sqlite-crash-normal postgres-on postgres-commit-off postgres-fsync-off");
}
