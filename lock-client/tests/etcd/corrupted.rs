//! An encrypted connection that breaks after a request was sent.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
};
use testbed::Etcd;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

use super::service::{acquired, attempt, client, release, secs};
use crate::{lock_service::with_causes, names::name};

/// Forwards connections to a port, and changes replies while the flag is set. Returns its own port.
async fn corrupter(upstream: String, corrupts: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&upstream).await.unwrap();
            let ((mut requests, mut answers), (mut replies, mut server)) =
                (near.into_split(), far.into_split());
            tokio::spawn(async move { copy(&mut requests, &mut server).await });
            let corrupts = corrupts.clone();
            tokio::spawn(async move {
                let mut chunk = [0; 4096];
                while let Ok(length @ 1..) = replies.read(&mut chunk).await {
                    if corrupts.load(Ordering::SeqCst) {
                        chunk[length - 1] ^= 1;
                    }
                    if answers.write_all(&chunk[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// The request was carried out, so it is not rejected.
#[tokio::test]
async fn outcome_of_a_request_is_unknown_if_its_reply_can_not_be_decrypted() {
    let etcd = Etcd::start_tls().await.unwrap();
    let corrupts = Arc::new(AtomicBool::new(false));
    let port = corrupter(etcd.address(0).to_string(), corrupts.clone()).await;
    let url = format!("etcds://127.0.0.1:{port}?tls-ca={}", etcd.ca_file().display());
    let locks = client(&url);
    // The connections are made: of held locks, and of tries.
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
    locks.status(&name("r")).await.unwrap();
    corrupts.store(true, Ordering::SeqCst);
    let error = attempt(&locks, &Holder::random(), Order::Unordered).await.unwrap_err();
    assert!(matches!(error, BackendError::Unavailable(_)), "{}", with_causes(&error));
    corrupts.store(false, Ordering::SeqCst);
    locks.status(&name("r")).await.unwrap();
}
