//! Object storage, and what a write costs there.

use std::sync::Arc;

use futures_util::future::try_join_all;
use object_store::{
    ObjectStore, PutMode, PutOptions, UpdateVersion, aws::AmazonS3Builder, path::Path,
};
use testbed::{ObjectStorage, Program, Proxy, StorageServer};

use crate::{
    bench::load::{CONNECTIONS, Load, repeat},
    http_client::http_client,
};

/// How many writes are counted.
const COUNTED_WRITES: u32 = 500;

/// A SeaweedFS, and a storage server over it.
pub(super) struct OverObjectStorage {
    pub(super) server: StorageServer,
    storage: ObjectStorage,
    client: Arc<dyn ObjectStore>,
    program: Program,
}

impl OverObjectStorage {
    pub(super) async fn start(program: &Program) -> anyhow::Result<Self> {
        let storage = ObjectStorage::start_seaweedfs().await?;
        let program = program.clone().with_variables(ObjectStorage::VARIABLES);
        let server = StorageServer::start_on(&program, &storage.url("bench"), &[]).await?;
        // The client is made for TLS, too. An error means that another one has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = AmazonS3Builder::new()
            .with_endpoint(storage.endpoint())
            .with_allow_http(true)
            .with_bucket_name(ObjectStorage::BUCKET)
            .with_access_key_id(ObjectStorage::ACCESS_KEY_ID)
            .with_secret_access_key(ObjectStorage::SECRET_ACCESS_KEY)
            .build()?;
        Ok(Self { server, storage, client: Arc::new(client), program })
    }

    /// Measures unfenced conditional writes straight into the store: each client replaces an object of
    /// its own.
    pub(super) async fn conditional_writes(&self, seconds: usize) -> anyhow::Result<Load> {
        let created = try_join_all((0..CONNECTIONS).map(async |client| {
            let path = Path::from(format!("unfenced/{client}"));
            let created =
                self.client.put_opts(&path, "hello".into(), PutOptions::default()).await?;
            anyhow::Ok((path, UpdateVersion::from(created)))
        }));
        let clients = created.await?.into_iter().map(|(path, mut version)| {
            let mut written = 0;
            async move || {
                let options = PutOptions::from(PutMode::Update(version.clone()));
                // Another content has another ETag.
                let value = format!("{written:05}");
                version = self.client.put_opts(&path, value.into(), options).await?.into();
                written += 1;
                anyhow::Ok(())
            }
        });
        repeat(clients, seconds).await
    }

    /// Counts the requests to the store for each write of one client that holds a lock, through a proxy.
    pub(super) async fn requests_per_write(&self) -> anyhow::Result<f64> {
        let proxy = Proxy::start(self.storage.address()).await?;
        let url = ObjectStorage::url_through(&proxy.url("http"), "counted");
        let server = StorageServer::start_on(&self.program, &url, &[]).await?;
        let requests =
            || ["GET /", "PUT /"].map(|method| proxy.requests(method)).iter().sum::<usize>();
        let before = requests();
        let client = http_client();
        for _ in 0..COUNTED_WRITES {
            let write = client.put(format!("{}/v1/resources/counted", server.url()));
            let answer = write.header("Fencing-Token", "34").body("hello").send().await?;
            answer.error_for_status()?;
        }
        Ok((requests() - before) as f64 / f64::from(COUNTED_WRITES))
    }
}
