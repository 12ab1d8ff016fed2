//! The memory that transactions take while they wait.

use serde_json::json;
use sqlx::Connection;
use testbed::wait::until_async;
use tokio::task::JoinHandle;

use super::{PATIENCE, put, transacting, write};
use crate::{
    server_rivals::open_transaction,
    wire::{self, Answer},
    world::World,
};

/// The body is only the way in which they came.
#[tokio::test]
async fn values_of_transactions_that_wait_are_in_memory_once() {
    const VALUES: usize = 32;
    const VALUE_BYTES: usize = 1 << 20;
    // On a busy machine, the first ones are answered before the last one waits.
    let mut resident = None;
    for _ in 0..10 {
        resident = resident_bytes_of_waiting(VALUES, VALUE_BYTES).await;
        if resident.is_some() {
            break;
        }
    }
    let resident = resident.expect("the server queues all values before it gives up the first");
    let values = VALUES * VALUE_BYTES;
    // The allocator keeps what a few bodies have needed.
    assert!((values..values * 3 / 2).contains(&resident), "{resident} bytes for {values}");
}

/// Returns by how much the resident memory of a server grows while transactions with one value each wait
/// for a lock, or nothing if one is answered before all of them wait.
async fn resident_bytes_of_waiting(values: usize, value_bytes: usize) -> Option<usize> {
    let mut world = World::on_postgres(&["--max-value-bytes", "1500000"]).await;
    let pid = world.server.process().pid().as_raw_nonzero();
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "b", 1, "one").await;
    let resident_bytes = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let (_, resident) = status.split_once("VmRSS:").unwrap();
        let kib: usize = resident.split_whitespace().next().unwrap().parse().unwrap();
        kib << 10
    };
    let before = resident_bytes();
    let lock = "select from storage.resource where resource = 'b' for update";
    let rival = open_transaction(postgres, lock).await;
    let mut waiting: Vec<JoinHandle<Answer>> = Vec::new();
    for number in 1..=values {
        let value = write(&format!("a/{number}"), 1, &"x".repeat(value_bytes));
        waiting.push(transacting(url, json!({"writes": [value, write("b", 2, "two")]})));
        // One after the other: a body that was read gives its memory to the next one.
        let queued = format!("storage_server_queued_operations {}", 2 * number);
        let one_is_answered = || waiting.iter().any(JoinHandle::is_finished);
        let is_queued = async || {
            let metrics = wire::request(url, "GET", "/metrics", &[], "").await.text();
            Ok(one_is_answered() || metrics.lines().any(|line| line == queued))
        };
        until_async(PATIENCE, is_queued).await.unwrap();
        if one_is_answered() {
            break;
        }
    }
    let resident = resident_bytes() - before;
    let all_wait = !waiting.iter().any(JoinHandle::is_finished);
    rival.close().await.unwrap();
    for transaction in waiting {
        let status = transaction.await.unwrap().status;
        assert!(status == 200 || !all_wait && status == 503, "{status}");
    }
    all_wait.then_some(resident)
}
