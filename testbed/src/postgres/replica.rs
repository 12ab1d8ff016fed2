//! An asynchronous replica that can be cut off from its primary.

use std::{process::Command, time::Duration};

use anyhow::{Context, ensure};
use sqlx::{Connection, Executor, PgConnection, query_scalar};

use super::{PORT, Postgres, program};
use crate::{proxy::Proxy, wait::until_async};

const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// A replica on a Unix socket of its own. It reaches its primary through a [`Proxy`].
#[derive(Debug)]
pub struct PostgresReplica {
    server: Postgres,
    proxy: Proxy,
}

impl Postgres {
    /// Starts an asynchronous replica of this one.
    ///
    /// # Errors
    /// If the primary can't be copied, or the replica doesn't start.
    pub async fn start_replica(&self) -> anyhow::Result<PostgresReplica> {
        let socket = self.socket_folder().join(format!(".s.PGSQL.{}", self.port()));
        let proxy = Proxy::start(socket).await?;
        let server = Self::prepare(Vec::new(), PORT)?;
        let mut copy = Command::new(program("pg_basebackup")?);
        copy.args(["--username=postgres", "--host=127.0.0.1", "--checkpoint=fast", "--no-sync"]);
        // It writes into the copy where the primary is, and by which slot the primary keeps what this
        // replica lacks.
        let port = proxy.address().port();
        copy.args(["--write-recovery-conf", "--create-slot"]).arg(format!("--slot=replica_{port}"));
        copy.arg(format!("--port={port}"));
        copy.arg("--pgdata").arg(server.data());
        // The proxy runs meanwhile.
        let copied = tokio::task::spawn_blocking(move || server.run(copy).map(|()| server));
        let mut server = copied.await??;
        server.start_again().await?;
        Ok(PostgresReplica { server, proxy })
    }
}

impl PostgresReplica {
    /// Returns the URL of its database `postgres`. It only reads until it is promoted.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Waits until it has all data that its primary has now.
    ///
    /// # Errors
    /// If it hasn't within half a minute.
    pub async fn catch_up(&self, primary: &Postgres) -> anyhow::Result<()> {
        let mut primary = PgConnection::connect(&primary.url()).await?;
        let sent: String =
            query_scalar("select pg_current_wal_flush_lsn()::text").fetch_one(&mut primary).await?;
        // This may be in the middle of a record, whose end may be flushed and sent only with the next
        // commit.
        for statement in ["set synchronous_commit = local", "select txid_current()"] {
            primary.execute(statement).await?;
        }
        let has_all = async || {
            let mut own = PgConnection::connect(&self.url()).await?;
            let has_all = "select pg_last_wal_replay_lsn() >= $1::pg_lsn";
            Ok(query_scalar(has_all).bind(&sent).fetch_one(&mut own).await?)
        };
        until_async(CATCH_UP_TIMEOUT, has_all).await.with_context(|| match &self.server.process {
            Some(process) => process.account("does not catch up"),
            None => "the replica does not run".to_owned(),
        })
    }

    /// Cuts the replica off from its primary. Clients still reach both.
    pub fn cut(&self) {
        self.proxy.cut();
    }

    /// Lets it reach its primary again.
    pub fn mend(&self) {
        self.proxy.mend();
    }

    /// Returns its server, to pause it.
    pub fn server(&self) -> &Postgres {
        &self.server
    }

    /// Ends all its processes at once without a checkpoint, as in a crash.
    ///
    /// # Errors
    /// If it doesn't run, or doesn't end.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        self.server.crash().await
    }

    /// Starts it again after a crash, on the same data.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        self.server.start_again().await
    }

    /// Makes it a primary, as a failover does.
    ///
    /// # Errors
    /// If the server does not do it.
    pub async fn promote(&self) -> anyhow::Result<()> {
        let mut connection = PgConnection::connect(&self.url()).await?;
        let is_promoted: bool =
            query_scalar("select pg_promote()").fetch_one(&mut connection).await?;
        ensure!(is_promoted, "the replica was not promoted within a minute");
        Ok(())
    }
}
