//! Requests to the storage whose request or reply is lost: read, claim, write and delete.

use fence::Fence;
use lock_client::{
    Lease,
    storage::{Answer, FencedError, FencedResource, Storage, StorageError},
};
use testbed::{Proxy, StorageServer, wait::until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::fences::new_fence;
use crate::lock_service::lasting;
use crate::lossy_service::{Fault, Service};
use crate::names::{name, token};
use crate::programs::storage_server;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const TEXT: &str = "text/plain";
const FAULTS: [Fault; 2] = [Fault::LostRequest, Fault::LostReply];

/// A storage server behind a proxy, in which `r` has the value `old`.
struct Shelf {
    server: StorageServer,
    proxy: Proxy,
    storage: Storage,
    fence: Fence,
}

impl Shelf {
    async fn start() -> Self {
        let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
        let proxy = Proxy::start(server.address()).await.unwrap();
        let storage = Storage::new(&proxy.url("http")).unwrap();
        let fence = new_fence(33);
        let written = storage.write(&name("r"), &fence, TEXT, "old").await.unwrap();
        assert_eq!(written, Answer::Accepted(1));
        Self { server, proxy, storage, fence }
    }

    /// Lets this go wrong with the next request.
    fn strike(&self, fault: Fault) {
        match fault {
            Fault::LostRequest => self.proxy.lose_request("HTTP/1.1"),
            Fault::LostReply => self.proxy.lose_reply_to("HTTP/1.1"),
            Fault::Hang => unreachable!("that is a test of its own"),
        }
    }

    /// The stored value and its version, read without the proxy.
    async fn value(&self) -> Option<(String, u64)> {
        let value = Storage::new(self.server.url()).unwrap().read(&name("r")).await.unwrap();
        value.map(|value| (String::from_utf8(value.bytes.to_vec()).unwrap(), value.version))
    }

    fn under(&self, lease: &Lease) -> FencedResource {
        self.storage.under(lease, &name("r"))
    }
}

/// Checks that the outcome is reported as unknown, and that the request was sent once.
#[track_caller]
fn assert_unknown<T: std::fmt::Debug>(
    shelf: &Shelf,
    sent: usize,
    outcome: Result<T, StorageError>,
) {
    assert!(matches!(outcome, Err(StorageError::Unknown(_))), "{outcome:?}");
    assert!(shelf.proxy.has_struck());
    assert_eq!(shelf.proxy.requests("HTTP/1.1"), sent + 1);
}

#[tokio::test]
async fn lost_reply_of_the_storage_is_an_unknown_outcome_and_nothing_is_sent_twice() {
    for fault in FAULTS {
        let shelf = Shelf::start().await;
        let (storage, r, higher) = (&shelf.storage, name("r"), new_fence(34));
        let happened = fault == Fault::LostReply;
        let sent = || shelf.proxy.requests("HTTP/1.1");

        let before = sent();
        shelf.strike(fault);
        let read = storage.read(&r).await;
        assert!(
            matches!(read, Err(StorageError::Unavailable(_))),
            "a read changes nothing: {read:?}"
        );
        assert!(shelf.proxy.has_struck() && sent() == before + 1);

        let before = sent();
        shelf.strike(fault);
        assert_unknown(&shelf, before, storage.write(&r, &shelf.fence, TEXT, "new").await);
        let expected = if happened { ("new".to_owned(), 2) } else { ("old".to_owned(), 1) };
        assert_eq!(shelf.value().await, Some(expected), "{fault:?}");

        let before = sent();
        shelf.strike(fault);
        assert_unknown(&shelf, before, storage.delete(&r, &shelf.fence).await);
        assert_eq!(shelf.value().await.is_none(), happened, "{fault:?}");

        for claims in ["read", "claim"] {
            let before = sent();
            shelf.strike(fault);
            match claims {
                "read" => assert_unknown(&shelf, before, storage.fenced_read(&r, &higher).await),
                _ => assert_unknown(&shelf, before, storage.claim(&r, &higher).await),
            }
            let old = storage.claim(&r, &shelf.fence).await.unwrap();
            assert_eq!(matches!(old, Answer::Rejected(_)), happened, "{fault:?} of a {claims}");
        }
        let read = storage.fenced_read(&r, &higher).await.unwrap();
        assert!(matches!(read, Answer::Accepted(_)), "it may be asked again");
    }
}

#[tokio::test]
async fn resource_under_a_lease_reports_what_may_have_happened_and_what_did_not() {
    for fault in FAULTS {
        let (shelf, service) = (Shelf::start().await, Service::start().await);
        service.redis.set("fenced:{r}:token", "33").await.unwrap();
        let lease = service.far.acquire(&name("r"), lasting()).await.unwrap();
        let resource = shelf.under(&lease);

        // Nothing was claimed yet: the claim comes first, and nothing has happened without it.
        shelf.strike(fault);
        let unclaimed = resource.write(TEXT, "new").await;
        assert!(matches!(unclaimed, Err(FencedError::Unavailable(_))), "{unclaimed:?}");
        assert_eq!(shelf.value().await, Some(("old".to_owned(), 1)));
        shelf.strike(fault);
        let unread = resource.read().await;
        assert!(matches!(unread, Err(FencedError::Unavailable(_))), "{unread:?}");
        assert_eq!(lease.token(), Ok(token(34)), "that is no rejection");

        // A write is sent again under its number, and is made once.
        resource.read().await.unwrap();
        shelf.strike(fault);
        assert_eq!(resource.write(TEXT, "new").await.unwrap(), 2);
        shelf.strike(fault);
        resource.delete().await.unwrap();
        assert!(shelf.proxy.has_struck());
        assert_eq!(shelf.value().await, None);
        assert_eq!(resource.write(TEXT, "last").await.unwrap(), 4);
        assert_eq!(lease.token(), Ok(token(34)), "nothing was reissued");
    }
}

/// A write arrived while the storage hung, and its client has gone. The storage may carry it out or
/// not, but this is decided before the next read is answered.
#[tokio::test]
async fn write_to_a_storage_that_hung_is_decided_before_the_next_read() {
    let (mut shelf, service) = (Shelf::start().await, Service::start().await);
    service.redis.set("fenced:{r}:token", "33").await.unwrap();
    let lease = service.far.acquire(&name("r"), lasting()).await.unwrap();
    let resource = shelf.under(&lease);
    resource.read().await.unwrap();
    shelf.server.process().pause().await.unwrap();
    tokio::select! {
        written = resource.write(TEXT, "while it hung") => panic!("it hangs: {written:?}"),
        arrived = until(PATIENCE, || Ok(shelf.proxy.requests("while it hung") == 1)) => {
            arrived.unwrap();
        }
    }
    let unsettled = resource.write(TEXT, "new").await;
    assert!(matches!(unsettled, Err(FencedError::Unknown(_))), "{unsettled:?}");
    shelf.server.process().resume().unwrap();

    let shown = resource.read().await.unwrap().unwrap();
    assert_eq!(lease.token(), Ok(token(35)));
    assert_eq!(resource.write(TEXT, "new").await.unwrap(), shown.version + 1);
    assert_eq!(shelf.value().await, Some(("new".to_owned(), shown.version + 1)));
}

/// A proxy between client and storage may answer for the storage after it has written.
#[tokio::test]
async fn success_that_is_not_understood_is_an_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = Storage::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let answering = async {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut request = [0; 1 << 16];
            let _ = client.read(&mut request).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfine!";
            client.write_all(answer).await.unwrap();
        }
    };
    let (r, fence) = (name("r"), new_fence(33));
    let asking = async {
        let written = storage.write(&r, &fence, TEXT, "value").await;
        assert!(matches!(written, Err(StorageError::Unknown(_))), "{written:?}");
        let claimed = storage.claim(&r, &fence).await;
        assert!(matches!(claimed, Err(StorageError::Unknown(_))), "{claimed:?}");
        let deleted = storage.delete(&r, &fence).await;
        assert!(matches!(deleted, Err(StorageError::Unknown(_))), "{deleted:?}");
    };
    tokio::select! {
        () = answering => {}
        () = asking => {}
    }
}
