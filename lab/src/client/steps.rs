//! How the lab's own clients tell of their steps: a JSON line each, as `lock-client put --step` does.

use std::io::{self, BufRead};

use anyhow::ensure;
use fence::Refusal;
use lock_client::{Lease, Released};
use serde_json::{Value, json};
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

/// Gives a lock back, and returns the step that this was.
pub(crate) async fn release(lease: Lease) -> anyhow::Result<Value> {
    Ok(match lease.release().await? {
        Released::Released => json!({"event": "released"}),
        Released::NotHeld | Released::StillHeld => json!({"event": "lease-lost"}),
    })
}

/// A step in which the storage refused.
pub(crate) fn told(event: &str, refusal: &Refusal) -> Value {
    let Refusal { reason, token, highest_token } = refusal;
    json!({
        "event": event, "token": token, "highest_token": highest_token, "reason": reason.slug(),
    })
}
