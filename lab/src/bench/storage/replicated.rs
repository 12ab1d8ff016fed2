//! PostgreSQL with synchronous standbys.

use testbed::{Postgres, PostgresReplica, Program, StorageServer};

use crate::bench::load::psql;

/// A primary whose commits wait for all of its standbys, and a storage server over it.
pub(super) struct Replicated {
    pub(super) server: StorageServer,
    pub(super) primary: Postgres,
    _standbys: Vec<PostgresReplica>,
}

impl Replicated {
    pub(super) async fn start(program: &Program, standbys: usize) -> anyhow::Result<Self> {
        let primary = Postgres::start().await?;
        let mut replicas = Vec::new();
        for _ in 0..standbys {
            replicas.push(primary.start_replica().await?);
        }
        psql(&primary, &format!("alter system set synchronous_standby_names = '{standbys} (*)'"))
            .await?;
        psql(&primary, "select pg_reload_conf()").await?;
        let server = StorageServer::start_on(program, &primary.url(), &[]).await?;
        Ok(Self { server, primary, _standbys: replicas })
    }
}
