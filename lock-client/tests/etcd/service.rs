//! The clients of a private etcd.

use std::{pin::pin, time::Duration};

use lock_client::{backend::Backend, etcd::Etcd};
use testbed::{
    Proxy,
    proxy::{Rule, Verdict},
};
use tokio::time::timeout;

use crate::names::name;
pub(crate) use crate::quorum::service::*;

/// The text of a transaction that may put a key.
pub(crate) const PUT: &str = "request_put";
/// The text of one that deletes keys.
pub(crate) const DELETION: &str = "request_delete_range";
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

/// Delays the requests with a text in them.
#[derive(Debug)]
pub(crate) struct Slow(pub(crate) &'static str, pub(crate) Duration);

impl Rule for Slow {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        match request.windows(self.0.len()).any(|window| window == self.0.as_bytes()) {
            true => Verdict::Delay(self.1),
            false => Verdict::Pass,
        }
    }
}

/// Runs a body while a request hangs that has a text in it. Returns the outcome of the request.
pub(crate) async fn while_it_hangs<T>(
    proxy: &Proxy,
    text: &str,
    request: impl Future<Output = T>,
    body: impl Future<Output = ()>,
) -> T {
    let (hold, mut request) = (proxy.hold(text), pin!(request));
    let meanwhile = async {
        let hangs = hold.caught().await.unwrap();
        body.await;
        hangs
    };
    let hangs = tokio::select! {
        _ = &mut request => panic!("the control: it hangs"),
        hangs = meanwhile => hangs,
    };
    hangs.deliver();
    request.await
}

/// Renews a lock, and not later than half of what a request that hangs may take.
pub(crate) async fn renews(locks: &Etcd, lock: &str, held: &Held, seconds: u64) {
    let name = name(lock);
    let renewing = timeout(SOON / 2, locks.renew(&name, &held.ownership, secs(seconds))).await;
    assert_eq!(renewing.expect("nothing delays it").unwrap(), Some(held.token));
}
