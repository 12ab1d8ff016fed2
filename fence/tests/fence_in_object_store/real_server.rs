//! A real S3 server: conditions, and clients that contend.

use std::sync::Arc;

use fence::object_store::{Outcome, RegisterError, Registers};
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig, aws::AmazonS3Builder,
    path::Path,
};
use testbed::ObjectStorage;
use tokio::task::JoinSet;

use super::{applied, offer};
use crate::names::name;

/// A client of its bucket, at its address or at that of a proxy before it.
fn client(endpoint: &str, max_retries: usize) -> Arc<dyn ObjectStore> {
    // The S3 client is made for TLS, too, and another test may have installed it before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_bucket_name(ObjectStorage::BUCKET)
        .with_access_key_id(ObjectStorage::ACCESS_KEY_ID)
        .with_secret_access_key(ObjectStorage::SECRET_ACCESS_KEY)
        .with_retry(RetryConfig { max_retries, ..RetryConfig::default() })
        .build();
    Arc::new(store.unwrap())
}

pub(crate) fn registers(endpoint: &str, max_retries: usize) -> Registers {
    Registers::new(client(endpoint, max_retries), Path::from("registers"))
}

#[tokio::test]
async fn seaweedfs_honours_conditions() {
    let server = ObjectStorage::start_seaweedfs().await.unwrap();
    let store = client(&server.endpoint(), 0);
    let path = Path::from("object");
    let put = async |value: &'static str, mode: PutMode| {
        store.put_opts(&path, value.into(), PutOptions::from(mode)).await
    };
    let first = put("1", PutMode::Create).await.unwrap();
    assert!(matches!(put("2", PutMode::Create).await, Err(Error::AlreadyExists { .. })));
    put("3", PutMode::Update(first.clone().into())).await.unwrap();
    let again = put("4", PutMode::Update(first.clone().into())).await;
    assert!(matches!(again, Err(Error::Precondition { .. })), "{again:?}");
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "3");
    store.delete(&path).await.unwrap();
    let gone = put("5", PutMode::Update(first.into())).await;
    assert!(matches!(gone, Err(Error::Precondition { .. })), "{gone:?}");
}

/// Eight clients increment a counter. None holds a lock: each takes a token above the one it saw.
#[tokio::test]
async fn no_acknowledged_increment_is_lost() {
    let server = ObjectStorage::start_seaweedfs().await.unwrap();
    let registers = registers(&server.endpoint(), 3);
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let registers = registers.clone();
        clients.spawn(async move {
            let mut counter = registers.register(&name("counter"));
            let (mut acknowledged, mut unknown) = (0, 0);
            for _ in 0..40 {
                let fence = counter.read().await.unwrap().fence;
                let token = fence.map_or(1, |fence| fence.token.as_u64() + 1);
                let offered = offer(token, &client.to_string());
                let claimed = match counter.claim(&offered).await {
                    Ok(Outcome::Applied(claimed)) => claimed,
                    Ok(Outcome::Rejected(_) | Outcome::Unknown(_))
                    | Err(RegisterError::Contended { .. }) => continue,
                    Err(error) => panic!("{error:?}"),
                };
                let count = claimed.value.map_or(0, |value| {
                    String::from_utf8(value.to_vec()).unwrap().parse::<u64>().unwrap()
                });
                match counter.write(&offered, (count + 1).to_string().into()).await.unwrap() {
                    Outcome::Applied(_) => acknowledged += 1,
                    Outcome::Rejected(_) => {}
                    Outcome::Unknown(_) => unknown += 1,
                }
            }
            (acknowledged, unknown)
        });
    }
    let counts = clients.join_all().await;
    let acknowledged: u64 = counts.iter().map(|(acknowledged, _)| acknowledged).sum();
    let unknown: u64 = counts.iter().map(|(_, unknown)| unknown).sum();
    let value = registers.register(&name("counter")).read().await.unwrap().value.unwrap();
    let count: u64 = String::from_utf8(value.to_vec()).unwrap().parse().unwrap();
    assert!(acknowledged > 0);
    assert!((acknowledged..=acknowledged + unknown).contains(&count), "{count}: {counts:?}");
}

#[tokio::test]
async fn large_values_and_names_of_every_kind_are_kept() {
    let server = ObjectStorage::start_seaweedfs().await.unwrap();
    let registers = registers(&server.endpoint(), 3);
    let longest = "🐢".repeat(128);
    for resource in ["alice", "alice/bob", "a b%2F+&?#=", "~", "...", &longest] {
        let mut register = registers.register(&name(resource));
        for (token, length) in [(34, 3), (35, 16 * 1024 + 1), (36, 5_000_000), (37, 100_000)] {
            let value = vec![b'x'; length];
            let _ = applied(register.write(&offer(token, "a"), value.clone().into()).await);
            let read = registers.register(&name(resource)).read().await.unwrap();
            assert_eq!(read.value.unwrap(), value, "{resource}");
        }
        assert_eq!(register.collect().await.unwrap(), 2, "{resource}");
        assert_eq!(register.read().await.unwrap().value.unwrap().len(), 100_000);
    }
}
