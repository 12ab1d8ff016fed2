//! An asynchronous replica that can be cut off from its primary.

use std::time::Duration;

use anyhow::ensure;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, query_scalar};

use super::MariaDb;
use crate::proxy::Proxy;

const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// A replica on a Unix socket of its own. It reaches its primary through a [`Proxy`].
#[derive(Debug)]
pub struct MariaDbReplica {
    server: MariaDb,
    proxy: Proxy,
}

impl MariaDb {
    /// Starts an asynchronous replica of this one, which was started with `--log-bin`.
    ///
    /// # Errors
    /// If the replica doesn't start, or does not take this one as its primary.
    pub async fn start_replica(&self) -> anyhow::Result<MariaDbReplica> {
        let proxy = Proxy::start(self.socket()).await?;
        let server = Self::start_with(&["--server-id=2"]).await?;
        let mut connection = MySqlConnection::connect(&server.url()).await?;
        // It begins with the first change in the primary's log.
        let follow = format!(
            "change master to master_host = '127.0.0.1', master_port = {}, master_user = 'root',
                master_use_gtid = slave_pos;
            start slave",
            proxy.address().port()
        );
        connection.execute(AssertSqlSafe(follow)).await?;
        Ok(MariaDbReplica { server, proxy })
    }
}

impl MariaDbReplica {
    /// Returns the URL of its database `test`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Waits until it has all data that its primary has now.
    ///
    /// # Errors
    /// If it hasn't within half a minute.
    pub async fn catch_up(&self, primary: &MariaDb) -> anyhow::Result<()> {
        let mut primary = MySqlConnection::connect(&primary.url()).await?;
        let sent: String =
            query_scalar("select @@global.gtid_binlog_pos").fetch_one(&mut primary).await?;
        let mut own = MySqlConnection::connect(&self.url()).await?;
        let waited: i64 = query_scalar("select master_gtid_wait(?, ?)")
            .bind(&sent)
            .bind(CATCH_UP_TIMEOUT.as_secs())
            .fetch_one(&mut own)
            .await?;
        ensure!(waited == 0, "the replica did not reach {sent} in time");
        Ok(())
    }

    /// Cuts the replica off from its primary. Clients still reach both.
    pub fn cut(&self) {
        self.proxy.cut();
    }

    /// Makes it a primary, as a failover does.
    ///
    /// # Errors
    /// If the server does not do it.
    pub async fn promote(&self) -> anyhow::Result<()> {
        let mut connection = MySqlConnection::connect(&self.url()).await?;
        connection.execute("stop slave; reset slave all").await?;
        Ok(())
    }
}
