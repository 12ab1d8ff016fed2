//! The settings of TCP connections. They are the same for all lock services.
//!
//! A connection fails if the other end has acknowledged nothing for a while, so that a new one is
//! made. Probes show that of an idle connection, and keep a NAT from forgetting it.

use std::time::Duration;

/// How long a connection is idle before it is probed.
pub(crate) const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
/// The time between probes.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// How long the other end may acknowledge nothing.
#[cfg(target_os = "linux")]
pub(crate) const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(2);
