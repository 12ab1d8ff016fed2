//! Servers whose store is object storage.

mod commands;
mod faults;
mod no_conditions;
mod rivals;

use std::sync::Arc;

use object_store::{ObjectStore, RetryConfig, aws::AmazonS3Builder};
use serde_json::json;
use testbed::{ObjectStorage, StorageServer};

use crate::{
    bad_input, ceiling, contract,
    database::{get, offer},
    enforcement, lists,
    programs::storage_server_with_keys,
    sequence, terraform,
    wire::{self, Answer},
    world::World,
};

const R: &str = "/v1/resources/r";

/// A server on a folder that it may share.
async fn serve(url: &str, arguments: &[&str]) -> StorageServer {
    StorageServer::start_on(&storage_server_with_keys(), url, arguments).await.unwrap()
}

/// A server on a folder of its own.
pub(crate) async fn world(storage: &ObjectStorage, folder: &str, arguments: &[&str]) -> World {
    World { server: serve(&storage.url(folder), arguments).await, postgres: None }
}

/// A client of the bucket itself.
fn bucket(storage: &ObjectStorage) -> Arc<dyn ObjectStore> {
    // The client is made for TLS, too. Another test may have installed it before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = AmazonS3Builder::new()
        .with_endpoint(storage.endpoint())
        .with_allow_http(true)
        .with_bucket_name(ObjectStorage::BUCKET)
        .with_access_key_id(ObjectStorage::ACCESS_KEY_ID)
        .with_secret_access_key(ObjectStorage::SECRET_ACCESS_KEY)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build();
    Arc::new(client.unwrap())
}

/// What also holds on SQLite and PostgreSQL. All of it on one SeaweedFS, which takes long to start.
#[tokio::test]
async fn contract_holds_over_object_storage() {
    let storage = ObjectStorage::start_seaweedfs().await.unwrap();
    contract::object_storage::run_all(&storage).await;
    lists::object_storage::run_all(&storage).await;
    bad_input::object_storage::run_all(&storage).await;
    sequence::object_storage::run_all(&storage).await;
    ceiling::object_storage::run_all(&storage).await;
    enforcement::object_storage::run_all(&storage).await;
    terraform::decisions::object_storage::run_all(&storage).await;

    transaction_has_one_resource(&serve(&storage.url("transactions"), &[]).await).await;
    let server = serve(&storage.url("large"), &[]).await;
    large_values_leave_nothing_behind(&server, &bucket(&storage)).await;
    commands::commands_do_what_object_storage_can(&storage).await;
}

async fn transact(server: &StorageServer, resources: &[&str]) -> Answer {
    let writes = resources
        .iter()
        .map(|resource| json!({"resource": resource, "token": 34, "value": {"text": "x"}}));
    let body = json!({
        "conditions": [{"resource": resources[0], "version": null}],
        "writes": writes.collect::<Vec<_>>()
    });
    let headers = [("Content-Type", "application/json")];
    wire::request(server.url(), "POST", "/v1/transactions", &headers, body.to_string()).await
}

async fn transaction_has_one_resource(server: &StorageServer) {
    let several = transact(server, &["a", "b"]).await;
    assert_eq!(several.problem(), "501 no-transactions");
    for resource in ["a", "b"] {
        assert_eq!(get(server, &format!("/v1/fences/{resource}")).await.status, 404);
    }
    assert_eq!(transact(server, &["a"]).await.status, 200);
    assert_eq!(transact(server, &["a"]).await.problem(), "412 condition-not-met");
    let stale = offer(server, "PUT", "/v1/resources/a", 33, "late").await;
    assert_eq!(stale.problem(), "412 stale-token");
}

/// A value above 16 KiB is an object of its own.
async fn large_values_leave_nothing_behind(server: &StorageServer, bucket: &Arc<dyn ObjectStore>) {
    for letter in ["x", "y", "z"] {
        let value = letter.repeat(100_000);
        assert!(offer(server, "PUT", R, 34, &value).await.status < 300);
        assert_eq!(get(server, R).await.text(), value);
        let claimed = offer(server, "GET", R, 34, "").await;
        assert_eq!(claimed.text(), value, "a claim keeps it");
    }
    let listed = get(server, "/v1/resources").await.json();
    assert_eq!(listed["resources"][0]["size"], 100_000);
    let folder = "large/r/fence.values".into();
    let values = async || {
        let listed = bucket.list_with_delimiter(Some(&folder)).await?;
        // SeaweedFS keeps the empty folder, and lists it.
        anyhow::Ok(listed.objects.iter().filter(|object| object.size > 0).count())
    };
    let patience = std::time::Duration::from_secs(30);
    testbed::wait::until_async(patience, async || Ok(values().await? == 1)).await.unwrap();
    assert_eq!(offer(server, "DELETE", R, 34, "").await.status, 204);
    testbed::wait::until_async(patience, async || Ok(values().await? == 0)).await.unwrap();
}
