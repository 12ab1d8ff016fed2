//! The clients of a private etcd.

use lock_client::etcd::Etcd;

pub(crate) use crate::quorum::service::*;

/// Makes a client, with patience for a busy machine.
pub(crate) fn client(url: &str) -> Etcd {
    <testbed::Etcd as Service>::client(url)
}
