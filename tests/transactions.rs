//! Transactions on several resources, where locks, servers and databases meet: what they compare stays
//! as it is until they are durable, and they take effect as a whole or not at all.

mod blocked;
mod comparisons;
mod locks;
#[cfg(target_os = "linux")]
mod memory;
mod transfers;

use std::time::Duration;

use fence::Fence;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::wire::{self, Answer};

const PATIENCE: Duration = Duration::from_secs(30);
const JSON: (&str, &str) = ("Content-Type", "application/json");

async fn transact(url: &str, transaction: &Value) -> Answer {
    wire::request(url, "POST", "/v1/transactions", &[JSON], transaction.to_string()).await
}

fn transacting(url: &str, transaction: Value) -> JoinHandle<Answer> {
    let url = url.to_owned();
    tokio::spawn(async move { transact(&url, &transaction).await })
}

fn write(resource: &str, token: u64, text: &str) -> Value {
    json!({"resource": resource, "token": token, "value": {"text": text}})
}

fn write_under(fence: &Fence, resource: &str, text: &str) -> Value {
    let (token, holder) = (fence.token.as_u64(), fence.holder.as_str());
    json!({"resource": resource, "token": token, "holder": holder, "value": {"text": text}})
}

async fn put(url: &str, resource: &str, token: u64, text: &str) -> Answer {
    let (path, token) = (format!("/v1/resources/{resource}"), token.to_string());
    wire::request(url, "PUT", &path, &[("Fencing-Token", &token)], text).await
}

async fn get(url: &str, resource: &str) -> Answer {
    wire::request(url, "GET", &format!("/v1/resources/{resource}"), &[], "").await
}

fn version(answer: &Answer) -> u64 {
    answer.header("etag").unwrap().trim_matches('"').parse().unwrap()
}
