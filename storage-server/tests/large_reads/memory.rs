//! The memory that answers take.

use std::fs;

use testbed::StorageServer;
use tokio::task::JoinSet;

use super::PATH;
use crate::{
    database::{Database, offer},
    wire,
};

/// The largest memory that a server has had since its start, in MiB.
fn peak_mib(server: &mut StorageServer) -> u64 {
    let pid = server.process().pid().as_raw_pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

#[tokio::test]
async fn answers_without_the_value_take_no_memory_for_it() {
    const MIB: usize = 64;
    let database = Database::sqlite();
    let limit = ["--max-value-bytes", "134217728"];
    let server = database.serve(&limit).await;
    let value = "x".repeat(MIB << 20);
    assert_eq!(offer(&server, "PUT", PATH, 1, &value).await.status, 201);
    drop(server);
    let mut server = database.serve(&limit).await;
    let mut reads = JoinSet::new();
    for _ in 0..8 {
        let url = server.url().to_owned();
        reads.spawn(async move {
            wire::request(&url, "GET", PATH, &[("If-None-Match", "\"1\"")], "").await.status
        });
    }
    assert_eq!(reads.join_all().await, [304; 8]);
    let peak = peak_mib(&mut server);
    assert!(peak < MIB as u64 + 64, "{peak} MiB");
}
