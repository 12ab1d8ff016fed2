//! A private lock service of each kind.

use std::{any::Any, path::Path, time::Duration};

use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use testbed::{Etcd, MariaDb, NodeKind, Postgres, Redis, RedlockNodes, ZooKeeper};

use crate::start_cluster::start_cluster;

/// A lock service that ends with this value.
pub(crate) struct Service {
    pub(crate) url: String,
    _server: Box<dyn Any>,
}

impl Service {
    pub(crate) async fn redis() -> Self {
        let redis = Redis::start().await.unwrap();
        Self { url: redis.url(), _server: Box::new(redis) }
    }

    /// Three nodes of Redlock, which grant locks for up to ten minutes.
    pub(crate) async fn redlock() -> Self {
        let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
        start_cluster(&nodes, Duration::from_secs(600)).await;
        Self { url: nodes.urls().join(" "), _server: Box::new(nodes) }
    }

    pub(crate) async fn etcd() -> Self {
        let etcd = Etcd::start().await.unwrap();
        Self { url: etcd.url(), _server: Box::new(etcd) }
    }

    pub(crate) async fn zookeeper() -> Self {
        let zookeeper = ZooKeeper::start().await.unwrap();
        Self { url: zookeeper.url(), _server: Box::new(zookeeper) }
    }

    pub(crate) async fn postgres() -> Self {
        let service = Self::postgres_without_tables().await;
        let mut connection = PgConnection::connect(&service.url).await.unwrap();
        lock_client::postgres::install(&mut connection).await.unwrap();
        service
    }

    pub(crate) async fn postgres_without_tables() -> Self {
        let postgres = Postgres::start().await.unwrap();
        Self { url: postgres.url(), _server: Box::new(postgres) }
    }

    pub(crate) async fn mariadb() -> Self {
        let service = Self::mariadb_without_tables().await;
        let mut connection = MySqlConnection::connect(&service.url).await.unwrap();
        lock_client::mariadb::install(&mut connection).await.unwrap();
        service
    }

    pub(crate) async fn mariadb_without_tables() -> Self {
        let mariadb = MariaDb::start().await.unwrap();
        Self { url: mariadb.url(), _server: Box::new(mariadb) }
    }

    pub(crate) async fn sqlite() -> Self {
        Self::sqlite_in(&std::env::temp_dir()).await
    }

    pub(crate) async fn sqlite_in(parent: &Path) -> Self {
        let service = Self::file_in(parent);
        let mut connection = SqliteConnection::connect(&service.url).await.unwrap();
        lock_client::sqlite::install(&mut connection).await.unwrap();
        service
    }

    pub(crate) async fn sqlite_without_tables() -> Self {
        Self::file_in(&std::env::temp_dir())
    }

    fn file_in(parent: &Path) -> Self {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let file = folder.path().join("locks.db");
        std::fs::write(&file, "").unwrap();
        Self { url: format!("sqlite:{}", file.display()), _server: Box::new(folder) }
    }
}
