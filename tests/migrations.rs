//! The fence and the storage server live beside other migrations in one database.

use std::path::Path;

use fence::postgres;
use lock_client::storage::{Answer, Storage};
use sqlx::{Connection, PgConnection, migrate::Migrator};
use tempfile::TempDir;
use testbed::{Postgres, StorageServer};

use crate::{fences::new_fence, names::name, programs::storage_server};

#[tokio::test]
async fn fence_lives_beside_other_migrations() {
    let server = Postgres::start().await.unwrap();
    let folder = TempDir::new().unwrap();
    let own = folder.path().join("0001_accounts.sql");
    std::fs::write(&own, "create table accounts (account_id text primary key)").unwrap();
    let migrate = async |folder: &Path| {
        let own = Migrator::new(folder).await.unwrap();
        own.run(&mut session(&server).await).await.unwrap();
    };
    migrate(folder.path()).await;
    postgres::install(&mut session(&server).await).await.unwrap();
    let storage_server =
        StorageServer::start_on(&storage_server(), &server.url(), &[]).await.unwrap();
    let protect = "select fence.protect('accounts', 'account_id')";
    std::fs::write(folder.path().join("0002_protect.sql"), protect).unwrap();
    migrate(folder.path()).await;
    postgres::install(&mut session(&server).await).await.unwrap();
    drop(storage_server);
    let storage_server =
        StorageServer::start_on(&storage_server(), &server.url(), &[]).await.unwrap();

    assert_it_works(&server).await;
    let storage = Storage::new(storage_server.url()).unwrap();
    let written = storage.write(&name("alice"), &new_fence(1), "text/plain", "hello").await;
    assert!(matches!(written.unwrap(), Answer::Accepted(_)));
    let mut database = session(&server).await;
    let insert = "insert into accounts values ('alice')";
    assert_eq!(attempt(&mut database, insert).await.unwrap_err(), TOKEN_REQUIRED);
}
