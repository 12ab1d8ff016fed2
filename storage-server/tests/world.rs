//! A storage server on its own database, and its answers.

use testbed::{Postgres, StorageServer};

use crate::programs::storage_server;
use crate::wire::{self, Answer};

/// A storage server, and the database that it has to itself.
pub(crate) struct World {
    pub(crate) server: StorageServer,
    /// None where the database is SQLite.
    pub(crate) postgres: Option<Postgres>,
}

impl World {
    pub(crate) async fn on_sqlite(arguments: &[&str]) -> Self {
        Self {
            server: StorageServer::start(&storage_server(), arguments).await.unwrap(),
            postgres: None,
        }
    }

    pub(crate) async fn on_postgres(arguments: &[&str]) -> Self {
        let postgres = Postgres::start().await.unwrap();
        let server =
            StorageServer::start_on(&storage_server(), &postgres.url(), arguments).await.unwrap();
        Self { server, postgres: Some(postgres) }
    }

    /// Sends a request without a body.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        wire::request(self.server.url(), method, path, headers, "").await
    }

    /// Writes a value.
    pub(crate) async fn put(&self, path: &str, headers: &[(&str, &str)], value: &str) -> Answer {
        wire::request(self.server.url(), "PUT", path, headers, value).await
    }
}
