//! Reissue, and writes with unknown outcome: how far a resource under a lease heals itself, and
//! where it stops.

mod late_writes;
mod lost_counter;
mod lost_locks;
mod sharing;
mod two_primaries;

use fence::{Fence, Rejection, RejectionReason};
use lock_client::{
    Lease,
    storage::{Answer, FencedError, FencedResource, Storage, Value},
};
use testbed::{Redis, StorageServer};

use crate::programs::storage_server;
use crate::{
    lock_service::{lasting, locks, redis_before, set_counter},
    names::{name, token},
    wire,
};
use testbed::{Proxy, proxy::LateRequest};

const TEXT: &str = "text/plain";

async fn acquire(redis: &Redis) -> Lease {
    locks(&redis.url()).acquire(&name("r"), lasting()).await.unwrap()
}

/// The token and the first characters of the holder that the storage keeps for `r`.
async fn fence(server: &StorageServer) -> (u64, String) {
    let shown = wire::request(server.url(), "GET", "/v1/fences/r", &[], "").await.json();
    (shown["token"].as_u64().unwrap(), shown["holder"].as_str().unwrap().to_owned())
}

/// A fence as the storage shows it.
fn shown(token: u64, lease: &Lease) -> (u64, String) {
    (token, lease.holder().redacted())
}

/// The value of `r` and its version, read without claiming.
async fn kept(server: &StorageServer) -> Option<(String, u64)> {
    let value = Storage::new(server.url()).unwrap().read(&name("r")).await.unwrap();
    value.map(|value| (text(&value), value.version))
}

fn text(value: &Value) -> String {
    String::from_utf8(value.bytes.to_vec()).unwrap()
}

async fn read(resource: &FencedResource) -> Result<Option<String>, FencedError> {
    Ok(resource.read().await?.as_ref().map(text))
}

/// `r` under a lease.
fn under(server: &StorageServer, lease: &Lease) -> FencedResource {
    Storage::new(server.url()).unwrap().under(lease, &name("r"))
}

fn stale(offered: u64, highest: u64) -> Rejection {
    rejection(RejectionReason::Stale, offered, highest)
}

fn rejection(reason: RejectionReason, offered: u64, highest: u64) -> Rejection {
    Rejection { reason, token: token(offered), highest_token: token(highest) }
}

#[track_caller]
fn assert_lost<T: std::fmt::Debug>(outcome: Result<T, FencedError>, expected: Option<Rejection>) {
    match outcome {
        Err(FencedError::Lost { rejection, .. }) => assert_eq!(rejection, expected),
        other => panic!("it is lost: {other:?}"),
    }
}

#[track_caller]
fn assert_unknown<T: std::fmt::Debug>(outcome: Result<T, FencedError>) {
    assert!(matches!(outcome, Err(FencedError::Unknown(_))), "{outcome:?}");
}

/// A storage server behind a proxy, with a value, and a lease with token 33 that has claimed it.
struct Claimed {
    server: StorageServer,
    proxy: Proxy,
    redis: Redis,
    lease: Lease,
    resource: FencedResource,
}

impl Claimed {
    async fn on(redis: Redis) -> Self {
        let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
        let proxy = Proxy::start(server.address()).await.unwrap();
        let lease = acquire(&redis).await;
        let resource = through(&proxy).under(&lease, &name("r"));
        assert_eq!(resource.write(TEXT, "old").await.unwrap(), 1);
        assert_eq!(read(&resource).await.unwrap().as_deref(), Some("old"));
        assert_eq!(fence(&server).await, shown(33, &lease));
        Self { server, proxy, redis, lease, resource }
    }

    async fn with_33() -> Self {
        Self::on(redis_before(33).await).await
    }

    /// Writes, and gives up before the request arrives: it arrives late. Without that, the write would
    /// be sent again.
    async fn write_late(&self, value: &'static str) -> LateRequest {
        self.change_late(value, self.resource.write(TEXT, value)).await
    }

    async fn change_late<T: std::fmt::Debug>(
        &self,
        mark: &str,
        change: impl Future<Output = Result<T, FencedError>>,
    ) -> LateRequest {
        let held = self.proxy.hold(mark);
        tokio::select! {
            outcome = change => panic!("no answer: {outcome:?}"),
            caught = held.caught() => caught.unwrap().cut(),
        }
    }
}

fn through(proxy: &Proxy) -> Storage {
    Storage::new(&proxy.url("http")).unwrap()
}
