//! The settings and time limits of connections.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, ErrorKind, RedisError, RedisResult,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::time::timeout;

pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request may take. A later answer counts as none.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a connection is idle before it is probed.
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
/// The time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(2);

/// The settings of a connection to a single node.
pub(super) fn settings() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECTION_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

/// Small requests are sent at once. A connection fails if the other end has acknowledged nothing
/// for a while, so that a new one is made. Probes show that of an idle connection, and keep a NAT
/// from forgetting it.
pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_TIMEOUT);
    settings
}

/// Limits the time that a connection takes.
pub(super) async fn within<T>(
    limit: Duration,
    connecting: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    timeout(limit, connecting).await.unwrap_or_else(|_| Err(closed("it took too long to connect")))
}

pub(super) fn closed(reason: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, reason))
}
