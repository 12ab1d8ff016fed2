//! The settings and time limits of connections.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, ErrorKind, RedisError, RedisResult,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::time::timeout;

#[cfg(target_os = "linux")]
use crate::tcp::UNACKNOWLEDGED_TIMEOUT;
use crate::{
    backend::{DEFAULT_ANSWER_TIMEOUT, answer_timeout},
    tcp::{KEEPALIVE_INTERVAL, KEEPALIVE_TIME},
};

/// The time limits of a client. All are multiples of the time in which a request is answered, so that
/// they fit each other on a slow network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    /// How long a request may take. A later answer counts as none.
    pub(crate) answer: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self { answer: DEFAULT_ANSWER_TIMEOUT }
    }
}

impl TimeLimits {
    /// Makes the time limits of a client that waits this long for an answer: from 1 millisecond to 1
    /// hour.
    pub(crate) fn new(answer: Duration) -> Self {
        Self { answer: answer_timeout(answer) }
    }

    /// How long a connection may take: two round trips, and one more with TLS.
    pub(super) fn connecting(self) -> Duration {
        self.answer * 2
    }

    /// The time to ask Sentinels or the nodes of a Cluster, and to connect to what they name.
    pub(super) fn finding(self) -> Duration {
        self.answer * 6
    }

    /// How long the connection of the waiters may leave a request unanswered.
    pub(super) fn subscribing(self) -> Duration {
        self.answer * 4
    }

    /// How long a connection may leave everything unanswered before another is made. It is longer
    /// than a single try and its undoing: the release that undoes a try then follows it over the same
    /// connection. A longer wait may change connections. If the server hangs and then executes an
    /// old try last, that lock is free after its ttl.
    pub(crate) fn longest_silence(self) -> Duration {
        self.answer * 10
    }

    pub(super) fn settings(self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connecting()))
            .set_response_timeout(Some(self.answer))
    }
}

/// Small requests are sent at once.
pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_TIMEOUT);
    settings
}

pub(super) async fn within<T>(
    limit: Duration,
    connecting: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    timeout(limit, connecting).await.unwrap_or_else(|_| Err(closed("it took too long to connect")))
}

pub(super) fn closed(reason: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, reason))
}
