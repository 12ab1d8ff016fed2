//! The clients of a private etcd.

use lock_client::etcd::Etcd;

pub(crate) use crate::quorum::service::*;

/// Makes a client, with patience for a busy machine.
pub(crate) fn client(url: &str) -> Etcd {
    <testbed::Etcd as Service>::client(url)
}

/// Starts an etcd, a proxy before it, and a client that connects through it.
pub(crate) async fn behind_proxy() -> (testbed::Etcd, testbed::Proxy, Etcd) {
    let etcd = testbed::Etcd::start().await.unwrap();
    let proxy = testbed::Proxy::start(etcd.address(0)).await.unwrap();
    let locks = client(&proxy.url("etcd"));
    (etcd, proxy, locks)
}

/// Returns the number of leases that belong to one holder. Their ids are odd.
pub(crate) async fn own_leases(etcd: &testbed::Etcd) -> usize {
    let listed = etcd.etcdctl(&["lease", "list"]).await.unwrap();
    let ids = listed.lines().filter_map(|line| i64::from_str_radix(line, 16).ok());
    ids.filter(|id| id % 2 != 0).count()
}
