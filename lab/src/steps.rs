//! How the lab's own clients tell of their steps: a JSON line each, as `lock-client put --step` does.

use std::io::{self, BufRead};

use anyhow::ensure;
use serde_json::Value;
use tokio::task::spawn_blocking;

/// Tells of a step, and waits to be told to go on. What runs in the background goes on meanwhile.
pub(crate) async fn step(event: &Value) -> anyhow::Result<()> {
    print(event);
    let line = spawn_blocking(|| io::stdin().lock().read_line(&mut String::new()));
    ensure!(line.await?? > 0, "stdin ended before the last step");
    Ok(())
}

/// Tells of a step.
pub(crate) fn print(event: &Value) {
    println!("{event}");
}
