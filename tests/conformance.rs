//! The storage server, through the lock client's storage client, passes the suite that every
//! datastore with a fence passes.

use async_trait::async_trait;
use fence::{
    Fence, ResourceName,
    conformance::{self, Answer, Failure, Outcome, Subject},
};
use lock_client::storage::{self, Storage};
use testbed::{Postgres, StorageServer};

use crate::programs::storage_server;

struct OverHttp(Storage);

fn outcome<T>(answer: storage::Answer<T>) -> Answer {
    Ok(match answer {
        storage::Answer::Accepted(_) => Outcome::Accepted,
        storage::Answer::Rejected(rejection) => Outcome::Rejected(rejection),
    })
}

#[async_trait]
impl Subject for OverHttp {
    async fn claim(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        outcome(self.0.claim(resource, offered).await?)
    }

    async fn write(&mut self, resource: &ResourceName, offered: &Fence, value: &str) -> Answer {
        outcome(self.0.write(resource, offered, "text/plain", value.to_owned()).await?)
    }

    async fn delete(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        outcome(self.0.delete(resource, offered).await?)
    }

    async fn read(&mut self, resource: &ResourceName) -> Result<Option<String>, Failure> {
        let value = self.0.read(resource).await?;
        Ok(value.map(|value| String::from_utf8(value.bytes.into())).transpose()?)
    }
}

/// The suite offers tokens of all heights.
const WITHOUT_CEILING: &[&str] = &["--token-ceiling", "none"];

#[tokio::test]
async fn storage_server_on_sqlite_conforms() {
    let server = StorageServer::start(&storage_server(), WITHOUT_CEILING).await.unwrap();
    conformance::check(&mut OverHttp(Storage::new(server.url()).unwrap())).await.unwrap();
}

#[tokio::test]
async fn storage_server_on_postgres_conforms() {
    let postgres = Postgres::start().await.unwrap();
    let (program, url) = (storage_server(), postgres.url());
    let server = StorageServer::start_on(&program, &url, WITHOUT_CEILING).await.unwrap();
    conformance::check(&mut OverHttp(Storage::new(server.url()).unwrap())).await.unwrap();
}
