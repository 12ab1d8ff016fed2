//! What a test runs in: a storage server on a database of its own, and owners of tokens.

use std::sync::atomic::{AtomicU64, Ordering};

use fence::{Fence, Holder, ResourceName, Token};
use lab::servers::{Postgres, StorageServer};

use crate::wire::{self, Answer};

/// A storage server, and the database that it has to itself.
pub(crate) struct World {
    pub(crate) server: StorageServer,
    /// None where the database is SQLite.
    pub(crate) postgres: Option<Postgres>,
}

impl World {
    pub(crate) async fn on_sqlite(arguments: &[&str]) -> Self {
        Self { server: StorageServer::start(arguments).await.unwrap(), postgres: None }
    }

    pub(crate) async fn on_postgres(arguments: &[&str]) -> Self {
        let postgres = Postgres::start().await.unwrap();
        let server = StorageServer::start_on(&postgres.url(), arguments).await.unwrap();
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

/// Runs each test on SQLite and on PostgreSQL, with the arguments given to the server.
macro_rules! on_both_databases {
    ($arguments:expr => $($test:ident,)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::world::World::on_sqlite($arguments).await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::world::World::on_postgres($arguments).await).await;
            })*
        }
    };
}
pub(crate) use on_both_databases;

pub(crate) fn name(name: &str) -> ResourceName {
    name.parse().unwrap()
}

pub(crate) fn token(token: u64) -> Token {
    Token::new(token).unwrap()
}

/// A new owner of this token.
pub(crate) fn new_fence(number: u64) -> Fence {
    Fence { token: token(number), holder: Holder::random() }
}

/// A lock's counter, for tests that need tokens and no lock.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn next(&self) -> Fence {
        new_fence(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
