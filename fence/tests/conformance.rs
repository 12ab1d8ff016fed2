//! Every datastore with a fence passes the same suite.

use std::{collections::HashMap, str::FromStr, sync::Arc};

use ::object_store::{memory::InMemory, path::Path};
use async_trait::async_trait;
use fence::{
    ClaimError, Fence, ResourceName,
    conformance::{self, Answer, Failure, Outcome, Subject},
    mariadb,
    object_store::{self, Content, Register, RegisterError, Registers},
    postgres,
    redis::Fenced,
    sqlite,
};
use redis::aio::MultiplexedConnection;
use sqlx::{
    ConnectOptions, Connection, MySqlConnection, PgConnection, SqliteConnection,
    sqlite::SqliteConnectOptions,
};
use testbed::{MariaDb, ObjectStorage, Postgres, Redis};

use crate::fence_in_object_store::real_server;

/// The outcome of an offer, once its transaction has ended.
fn answer<E>(claimed: Result<(), ClaimError<E>>) -> Answer
where
    ClaimError<E>: Into<Failure>,
{
    match claimed {
        Ok(()) => Ok(Outcome::Accepted),
        Err(ClaimError::Rejected { rejection, .. }) => Ok(Outcome::Rejected(rejection)),
        Err(error) => Err(error.into()),
    }
}

/// A subject that keeps its values in a table, and claims and acts in one transaction.
macro_rules! sql_subject {
    (
        $Subject:ident, $Connection:ty, $claim:path, begin: $begin:literal, read: $read:literal,
        write: $write:literal, delete: $delete:literal,
    ) => {
        struct $Subject($Connection);

        impl $Subject {
            async fn fenced(
                &mut self,
                resource: &ResourceName,
                offered: &Fence,
                act: Option<(&'static str, Option<&str>)>,
            ) -> Answer {
                let mut transaction = self.0.begin_with($begin).await?;
                let claimed = $claim(&mut transaction, resource, offered).await;
                if claimed.is_err() {
                    transaction.rollback().await?;
                    return answer(claimed);
                }
                if let Some((statement, value)) = act {
                    let mut act = sqlx::query(statement).bind(resource.as_str());
                    if let Some(value) = value {
                        act = act.bind(value);
                    }
                    act.execute(&mut *transaction).await?;
                }
                transaction.commit().await?;
                Ok(Outcome::Accepted)
            }
        }

        #[async_trait]
        impl Subject for $Subject {
            async fn claim(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
                self.fenced(resource, offered, None).await
            }

            async fn write(
                &mut self,
                resource: &ResourceName,
                offered: &Fence,
                value: &str,
            ) -> Answer {
                self.fenced(resource, offered, Some(($write, Some(value)))).await
            }

            async fn delete(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
                self.fenced(resource, offered, Some(($delete, None))).await
            }

            async fn read(&mut self, resource: &ResourceName) -> Result<Option<String>, Failure> {
                let read = sqlx::query_scalar($read).bind(resource.as_str());
                Ok(read.fetch_optional(&mut self.0).await?)
            }
        }
    };
}

sql_subject! {
    InPostgres, PgConnection, postgres::claim,
    begin: "begin",
    read: "select value from subject where resource = $1",
    write: "insert into subject values ($1, $2)
        on conflict (resource) do update set value = excluded.value",
    delete: "delete from subject where resource = $1",
}

sql_subject! {
    InMariaDb, MySqlConnection, mariadb::claim,
    begin: "begin",
    read: "select value from subject where resource = ?",
    write: "replace into subject values (?, ?)",
    delete: "delete from subject where resource = ?",
}

sql_subject! {
    InSqlite, SqliteConnection, sqlite::claim,
    begin: "begin immediate",
    read: "select value from subject where resource = ?",
    write: "replace into subject values (?, ?)",
    delete: "delete from subject where resource = ?",
}

#[tokio::test]
async fn postgres_conforms() {
    let server = Postgres::start().await.unwrap();
    let mut database = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut database).await.unwrap();
    let table = r#"create table subject (resource text collate "C" primary key, value text)"#;
    sqlx::query(table).execute(&mut database).await.unwrap();
    conformance::check(&mut InPostgres(database)).await.unwrap();
}

#[tokio::test]
async fn mariadb_conforms() {
    let server = MariaDb::start().await.unwrap();
    let mut database = MySqlConnection::connect(&server.url()).await.unwrap();
    mariadb::install(&mut database).await.unwrap();
    let table = "
        create table subject (
            resource varchar(512) collate utf8mb4_nopad_bin primary key, value text not null
        ) character set utf8mb4";
    sqlx::query(table).execute(&mut database).await.unwrap();
    conformance::check(&mut InMariaDb(database)).await.unwrap();
}

/// Also in UTF-16, where a name has twice as many bytes.
#[tokio::test]
async fn sqlite_conforms() {
    for encoding in ["'UTF-8'", "'UTF-16'"] {
        let options = SqliteConnectOptions::from_str("sqlite::memory:").unwrap();
        let mut database = options.pragma("encoding", encoding).connect().await.unwrap();
        sqlite::install(&mut database).await.unwrap();
        let table = "create table subject (resource text primary key, value text)";
        sqlx::query(table).execute(&mut database).await.unwrap();
        conformance::check(&mut InSqlite(database)).await.expect(encoding);
    }
}

struct InRedis(MultiplexedConnection);

impl InRedis {
    fn key(resource: &ResourceName) -> String {
        format!("value of {resource}")
    }
}

fn fenced(resource: &ResourceName, offered: &Fence) -> Fenced {
    Fenced::new(resource, offered)
}

#[async_trait]
impl Subject for InRedis {
    async fn claim(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        answer(fenced(resource, offered).claim(&mut self.0).await)
    }

    async fn write(&mut self, resource: &ResourceName, offered: &Fence, value: &str) -> Answer {
        answer(fenced(resource, offered).set(&mut self.0, &Self::key(resource), value).await)
    }

    async fn delete(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        answer(fenced(resource, offered).del(&mut self.0, &Self::key(resource)).await)
    }

    async fn read(&mut self, resource: &ResourceName) -> Result<Option<String>, Failure> {
        Ok(redis::cmd("GET").arg(Self::key(resource)).query_async(&mut self.0).await?)
    }
}

#[tokio::test]
async fn redis_conforms() {
    let server = Redis::start().await.unwrap();
    let connection = testbed::redis::connect(server.url()).await.unwrap();
    conformance::check(&mut InRedis(connection)).await.unwrap();
}

/// Registers, whose handles are kept or made anew for each call.
struct InObjectStore {
    registers: Registers,
    kept: Option<HashMap<ResourceName, Register>>,
}

impl InObjectStore {
    fn register(&mut self, resource: &ResourceName) -> Register {
        let kept = self.kept.as_mut().and_then(|kept| kept.remove(resource));
        kept.unwrap_or_else(|| self.registers.register(resource))
    }

    fn keep(&mut self, resource: &ResourceName, register: Register) {
        if let Some(kept) = &mut self.kept {
            kept.insert(resource.clone(), register);
        }
    }

    fn answer(outcome: Result<object_store::Outcome<Content>, RegisterError>) -> Answer {
        match outcome? {
            object_store::Outcome::Applied(_) => Ok(Outcome::Accepted),
            object_store::Outcome::Rejected(rejection) => Ok(Outcome::Rejected(rejection)),
            object_store::Outcome::Unknown(unknown) => Err(unknown.into()),
        }
    }
}

#[async_trait]
impl Subject for InObjectStore {
    async fn claim(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        let mut register = self.register(resource);
        let outcome = register.claim(offered).await;
        self.keep(resource, register);
        Self::answer(outcome)
    }

    async fn write(&mut self, resource: &ResourceName, offered: &Fence, value: &str) -> Answer {
        let mut register = self.register(resource);
        let outcome = register.write(offered, value.to_owned().into()).await;
        self.keep(resource, register);
        Self::answer(outcome)
    }

    async fn delete(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        let mut register = self.register(resource);
        let outcome = register.delete(offered).await;
        self.keep(resource, register);
        Self::answer(outcome)
    }

    /// Through a handle of its own, which remembers nothing.
    async fn read(&mut self, resource: &ResourceName) -> Result<Option<String>, Failure> {
        let value = self.registers.register(resource).read().await?.value;
        Ok(value.map(|value| String::from_utf8(value.to_vec())).transpose()?)
    }
}

#[tokio::test]
async fn object_store_in_memory_conforms() {
    for kept in [None, Some(HashMap::new())] {
        let registers = Registers::new(Arc::new(InMemory::new()), Path::ROOT);
        conformance::check(&mut InObjectStore { registers, kept }).await.unwrap();
    }
}

#[tokio::test]
async fn seaweedfs_conforms() {
    let server = ObjectStorage::start_seaweedfs().await.unwrap();
    let registers = real_server::registers(&server.endpoint(), 3);
    let kept = Some(HashMap::new());
    conformance::check(&mut InObjectStore { registers, kept }).await.unwrap();
}
