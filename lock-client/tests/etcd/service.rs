//! The clients of a private etcd.

use lock_client::etcd::Etcd;

pub(crate) use crate::quorum::service::*;

/// Makes a client, with patience for a busy machine.
pub(crate) fn client(url: &str) -> Etcd {
    <testbed::Etcd as Service>::client(url)
}

/// Returns the number of leases that belong to one holder. Their ids are odd.
pub(crate) async fn own_leases(etcd: &testbed::Etcd) -> usize {
    let listed = etcd.etcdctl(&["lease", "list"]).await.unwrap();
    let ids = listed.lines().filter_map(|line| i64::from_str_radix(line, 16).ok());
    ids.filter(|id| id % 2 != 0).count()
}
