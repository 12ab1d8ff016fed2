//! The fence and the storage server live beside other migrations in one database.

use std::path::Path;

use fence::postgres;
use lock_client::storage::{Answer, Storage};
use sqlx::{Connection, PgConnection, migrate::Migrator};
use tempfile::TempDir;
use testbed::{Postgres, StorageServer};

use crate::{fences::new_fence, names::name, programs::storage_server};

const STALE: &str = "ZF001";
const TOKEN_REQUIRED: &str = "ZF004";

async fn session(server: &Postgres) -> PgConnection {
    PgConnection::connect(&server.url()).await.unwrap()
}

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
    let server_beside =
        StorageServer::start_on(&storage_server(), &server.url(), &[]).await.unwrap();
    let protect = "select fence.protect('accounts', 'account_id')";
    std::fs::write(folder.path().join("0002_protect.sql"), protect).unwrap();
    migrate(folder.path()).await;
    postgres::install(&mut session(&server).await).await.unwrap();
    drop(server_beside);
    let server_beside =
        StorageServer::start_on(&storage_server(), &server.url(), &[]).await.unwrap();

    let claim = "select fence.claim('alice', $1, 'a')";
    let claim = async |token: i64| {
        sqlx::query(claim).bind(token).execute(&mut session(&server).await).await
    };
    claim(34).await.unwrap();
    let stale = claim(33).await.unwrap_err();
    assert_eq!(stale.as_database_error().unwrap().code().as_deref(), Some(STALE));
    let storage = Storage::new(server_beside.url()).unwrap();
    let written = storage.write(&name("alice"), &new_fence(1), "text/plain", "hello").await;
    assert!(matches!(written.unwrap(), Answer::Accepted(_)));
    let mut database = session(&server).await;
    let insert = "insert into accounts values ('alice')";
    let rejected = sqlx::query(insert).execute(&mut database).await.unwrap_err();
    assert_eq!(rejected.as_database_error().unwrap().code().as_deref(), Some(TOKEN_REQUIRED));
}
