//! The command `lab`: its scenarios, its hammer, its doctor, its power losses, its page and its benches.

mod bench;
#[cfg(target_os = "linux")]
mod browser;
mod doctor;
mod hammer;
mod patroni_at_length;
#[cfg(target_os = "linux")]
mod power_loss;
mod replay;
#[cfg(target_os = "linux")]
mod serve;

use futures_util::StreamExt;
use object_store::{ObjectStore, aws::AmazonS3Builder};
use testbed::{ObjectStorage, Program};

/// The storage server, which this command contains.
fn storage_server() -> Program {
    Program::new(env!("CARGO_BIN_EXE_lab")).with_subcommand("storage-server")
}

/// Checks that nothing is in the bucket.
async fn assert_empty(server: &ObjectStorage) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_bucket_name(ObjectStorage::BUCKET)
        .with_access_key_id(ObjectStorage::ACCESS_KEY_ID)
        .with_secret_access_key(ObjectStorage::SECRET_ACCESS_KEY)
        .build()
        .unwrap();
    let left = store.list(None).next().await;
    assert!(left.is_none(), "something was left behind: {left:?}");
}
