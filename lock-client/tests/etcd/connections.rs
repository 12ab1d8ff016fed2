//! The connections of a client: one is kept for held locks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{Order, backend::Backend};
use testbed::{Etcd, wait::until};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::service::{SOON, acquired, attempt, client, release, secs};
use crate::names::name;

/// Forwards connections to an etcd.
struct Forwarder {
    port: u16,
    /// How many it has made.
    made: Arc<AtomicUsize>,
    cuts: watch::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Forwarder {
    async fn start(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, upstream) = (listener.local_addr().unwrap().port(), etcd.address(0));
        let (made, (cuts, cut)) = (Arc::<AtomicUsize>::default(), watch::channel(()));
        let count = made.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let mut far = TcpStream::connect(upstream).await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let mut cut = cut.clone();
                cut.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { port, made, cuts, accepting }
    }

    fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// Makes no more connections. Those that are open go on.
    async fn refuse(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    fn cut(&self) {
        self.cuts.send_replace(());
    }
}

#[tokio::test]
async fn held_lock_needs_no_connection_that_waiters_can_use_up() {
    let etcd = Etcd::start().await.unwrap();
    let mut forwarder = Forwarder::start(&etcd).await;
    let locks = client(&forwarder.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let waiters = [Order::Fair, Order::Unordered].map(|order| (Holder::random(), order));
    let mut wakeups = Vec::new();
    for (holder, order) in &waiters {
        wakeups.push(locks.subscribe(&name("r"), holder, *order).await.unwrap());
    }
    forwarder.refuse().await;
    // A try that gives up does not close the connection.
    let other = Holder::random();
    let given_up = attempt(&locks, &other, Order::Unordered);
    timeout(Duration::ZERO, given_up).await.unwrap_err();
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(lock.token));
    // Tries of others at the same time. Those that find no connection fail.
    let tries = (0..20).map(async |_| {
        let _ = attempt(&locks, &Holder::random(), Order::Unordered).await;
    });
    let held = async {
        for _ in 0..5 {
            let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
            assert_eq!(renewed, Some(lock.token));
        }
        locks.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap().unwrap();
        release(&locks, &lock).await
    };
    let (_, released) = tokio::join!(join_all(tries), held);
    assert!(released);
    // The control: a client without a lock has no connection.
    client(&forwarder.url()).status(&name("r")).await.unwrap_err();
}

#[tokio::test]
async fn lost_connection_of_a_held_lock_is_made_again_at_once() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(&etcd).await;
    let locks = client(&forwarder.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let made = forwarder.made();
    assert_eq!(made, 1, "an acquire takes one connection");
    forwarder.cut();
    until(SOON, || Ok(forwarder.made() > made)).await.expect("no request needs it");
    // The control: without a lock, it is not needed.
    assert!(release(&locks, &lock).await);
    let made = forwarder.made();
    forwarder.cut();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(forwarder.made(), made);
}

/// Each request that finds no connection free would make one more.
#[tokio::test]
async fn tries_at_one_time_share_few_connections() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(&etcd).await;
    let locks = client(&forwarder.url());
    let names: Vec<_> = (0..200).map(|number| name(&format!("r{number}"))).collect();
    let held = join_all(names.iter().map(|name| acquired(&locks, name, secs(60)))).await;
    assert!(forwarder.made() <= 20, "{} connections", forwarder.made());
    let renewals =
        names.iter().zip(&held).map(|(name, lock)| locks.renew(name, &lock.ownership, secs(60)));
    for (renewed, lock) in join_all(renewals).await.into_iter().zip(&held) {
        assert_eq!(renewed.unwrap(), Some(lock.token));
    }
}

/// The sessions, the deletions and the connection are one task's.
#[tokio::test]
async fn held_locks_cost_no_task_each() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    acquired(&locks, &name("first"), secs(60)).await;
    let before = tasks();
    for number in 0..50 {
        acquired(&locks, &name(&format!("r{number}")), secs(60)).await;
    }
    assert!(tasks() <= before + 2, "{} tasks, and {before} before", tasks());
}
