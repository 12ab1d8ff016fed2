//! The connections of a client: those that held locks keep, and those that tries share.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    AcquireError, Locks, Order, Terms,
    backend::{Attempt, Backend, BackendError},
};
use testbed::{Etcd, wait::until};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::service::{
    DELETION, PUT, SOON, acquired, attempt, behind_proxy, client, release, renews, secs, until_free,
};
use crate::names::name;

/// Forwards connections to an etcd.
pub(crate) struct Forwarder {
    port: u16,
    /// How many it has made.
    made: Arc<AtomicUsize>,
    /// How many of them are open.
    open: Arc<AtomicUsize>,
    /// The number of the connection that was cut; `None` for all.
    cuts: watch::Sender<Option<usize>>,
    accepting: JoinHandle<()>,
    closes: Arc<AtomicBool>,
}

impl Forwarder {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (made, (cuts, cut)) = (Arc::<AtomicUsize>::default(), watch::channel(None));
        let closes = Arc::<AtomicBool>::default();
        let open = Arc::<AtomicUsize>::default();
        let (count, opened, closes_now) = (made.clone(), open.clone(), closes.clone());
        let accepting = tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                // Before it is counted: a test that has seen the count may cut it at once.
                let mut cut = cut.clone();
                cut.mark_unchanged();
                let number = count.fetch_add(1, Ordering::SeqCst);
                if closes_now.load(Ordering::SeqCst) {
                    continue;
                }
                let mut far = TcpStream::connect(upstream).await.unwrap();
                let is_cut = async move {
                    while cut.changed().await.is_ok()
                        && cut.borrow_and_update().is_some_and(|other| other != number)
                    {
                    }
                };
                opened.fetch_add(1, Ordering::SeqCst);
                let opened = opened.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        () = is_cut => {}
                    }
                    opened.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, made, open, cuts, accepting, closes }
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// Makes no more connections. Those that are open go on.
    pub(super) async fn refuse(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    /// Closes new connections at once, as a load balancer does that reaches no server.
    fn close(&self) {
        self.closes.store(true, Ordering::SeqCst);
    }

    fn cut(&self) {
        self.cuts.send_replace(None);
    }

    /// Cuts one of them, in the order in which they were made.
    fn cut_only(&self, number: usize) {
        self.cuts.send_replace(Some(number));
    }
}

#[tokio::test]
async fn held_lock_needs_no_connection_that_waiters_can_use_up() {
    let etcd = Etcd::start().await.unwrap();
    let mut forwarder = Forwarder::start(etcd.address(0)).await;
    let locks = client(&forwarder.url()).answer_within(SOON);
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
    renews(&locks, "r", &lock, 60).await;
    // Tries of others at the same time. Those that find no connection fail.
    let tries = (0..20).map(async |_| {
        let _ = attempt(&locks, &Holder::random(), Order::Unordered).await;
    });
    let held = async {
        for _ in 0..5 {
            renews(&locks, "r", &lock, 60).await;
        }
        locks.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap().unwrap();
        release(&locks, &lock).await
    };
    let (_, released) = tokio::join!(join_all(tries), held);
    assert!(released);
    // The control: a client without a lock has no connection.
    client(&forwarder.url()).status(&name("r")).await.unwrap_err();
}

/// The try has a connection. Those that a held lock needs can't be made.
#[tokio::test]
async fn lock_without_its_connections_is_given_back() {
    let etcd = Etcd::start().await.unwrap();
    let mut forwarder = Forwarder::start(etcd.address(0)).await;
    let backend = client(&forwarder.url());
    backend.status(&name("r")).await.unwrap();
    forwarder.refuse().await;
    let locks = Locks::new(backend);
    let put = async || etcd.etcdctl(&["get", "fenced", "--prefix", "-w", "json"]).await.unwrap();
    let before = put().await;
    let tried = locks.acquire(&name("r"), Terms::new(secs(600)).no_wait()).await;
    assert!(matches!(tried, Err(AcquireError::Unavailable { .. })), "{tried:?}");
    assert_ne!(put().await, before, "the control: the revision shows that it was put");
    // Long before its ttl ends.
    until_free(&client(&etcd.url())).await;
}

#[tokio::test]
async fn lost_connections_of_a_held_lock_are_made_again_at_once() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(etcd.address(0)).await;
    let locks = client(&forwarder.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let until_made = async |made| until(SOON, || Ok(forwarder.made() >= made)).await;
    until_made(2).await.expect("one for renewals, and one for releases");
    forwarder.cut();
    until_made(4).await.expect("no request needs them");
    assert!(forwarder.made() <= 6, "{} connections", forwarder.made());
    // The control: without a lock, it is not needed.
    assert!(release(&locks, &lock).await);
    let made = forwarder.made();
    forwarder.cut();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(forwarder.made(), made);
}

/// The time of another lock is up, and its deletion hangs.
#[tokio::test]
async fn lost_connection_of_renewals_waits_for_no_deletion() {
    let (_etcd, proxy, _) = behind_proxy().await;
    let forwarder = Forwarder::start(proxy.address()).await;
    let locks = client(&forwarder.url()).answer_within(SOON);
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let hold = proxy.hold(DELETION);
    // Until its ttl ends, the further connections are closed. So none of them replaces the lost one.
    acquired(&locks, &name("other"), secs(8)).await;
    let hangs = hold.caught().await.unwrap();
    let made = forwarder.made();
    // The first one was made by the try that acquired the lock, and releases keep it.
    forwarder.cut_only(1);
    let is_made = until(SOON / 2, || Ok(forwarder.made() > made)).await;
    is_made.expect("the deletion does not delay it");
    hangs.deliver();
    assert!(release(&locks, &lock).await);
}

#[tokio::test]
async fn connection_that_is_closed_at_once_is_not_made_again_at_once() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(etcd.address(0)).await;
    let locks = client(&forwarder.url());
    acquired(&locks, &name("r"), secs(60)).await;
    let made = forwarder.made();
    forwarder.close();
    forwarder.cut();
    sleep(Duration::from_secs(3)).await;
    let again = forwarder.made() - made;
    assert!((2..10).contains(&again), "{again} connections");
}

/// Renewals keep a connection to the first one.
#[tokio::test]
async fn try_that_leaves_a_member_moves_no_renewal() {
    let (etcd, proxy, _) = behind_proxy().await;
    let second = Forwarder::start(etcd.address(0)).await;
    let url = format!("{},127.0.0.1:{}", proxy.url("etcd"), second.port);
    let locks = client(&url).answer_within(Duration::from_secs(1));
    let (r, ttl) = (name("r"), secs(60));
    let lock = acquired(&locks, &r, ttl).await;
    proxy.lose_request(PUT);
    attempt_at(&locks, "other").await.unwrap_err();
    assert_eq!(locks.renew(&r, &lock.ownership, ttl).await.unwrap(), Some(lock.token));
    assert_eq!(second.made(), 0);
    // The control: the next try goes there.
    attempt_at(&locks, "third").await.unwrap();
    assert!(second.made() > 0);
}

async fn attempt_at(locks: &lock_client::etcd::Etcd, lock: &str) -> Result<Attempt, BackendError> {
    locks.try_acquire(&name(lock), &Holder::random(), secs(60), Order::Unordered).await
}

/// The patience is longer than that of a connection whose caller has given up.
#[tokio::test]
async fn answer_to_a_renewal_may_take_as_long_as_the_client_waits() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(SOON);
    let (r, ttl) = (name("r"), secs(60));
    let lock = acquired(&locks, &r, ttl).await;
    let hold = proxy.hold("/v3/lease/keepalive");
    let answers = async {
        let late = hold.caught().await.unwrap();
        sleep(Duration::from_secs(6)).await;
        late.deliver();
    };
    let (renewed, ()) = tokio::join!(locks.renew(&r, &lock.ownership, ttl), answers);
    assert_eq!(renewed.unwrap(), Some(lock.token));
}

/// Each request that finds no connection free would make one more.
#[tokio::test]
async fn tries_at_one_time_share_few_connections() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(etcd.address(0)).await;
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

/// A try every two seconds makes no connection while a lock is held. After the last lock, those close that
/// neither renewals nor releases keep.
#[tokio::test]
async fn further_connections_are_used_again_and_then_closed() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(etcd.address(0)).await;
    let locks = client(&forwarder.url());
    let names: Vec<_> = (0..10).map(|number| name(&format!("r{number}"))).collect();
    let held = join_all(names.iter().map(|name| acquired(&locks, name, secs(60)))).await;
    let made = forwarder.made();
    assert!(made > 2, "the control: {made} connections");
    let again = name("again");
    for _ in 0..3 {
        sleep(Duration::from_secs(2)).await;
        let lock = acquired(&locks, &again, secs(60)).await;
        assert!(locks.release(&again, &lock.ownership.holder, Some(lock.token)).await.unwrap());
    }
    assert_eq!(forwarder.made(), made);
    for (name, lock) in names.iter().zip(&held) {
        assert!(locks.release(name, &lock.ownership.holder, Some(lock.token)).await.unwrap());
    }
    let are_closed = || Ok(forwarder.open() == 2);
    until(SOON, are_closed).await.expect("the spare connections stay open");
}

/// No lock is held at any time.
#[tokio::test]
async fn connection_of_a_client_that_only_reads_is_closed() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(etcd.address(0)).await;
    let locks = client(&forwarder.url());
    locks.status(&name("r")).await.unwrap();
    assert_eq!(forwarder.made(), 1, "the control");
    let is_closed = || Ok(forwarder.open() == 0);
    until(SOON, is_closed).await.expect("the connection stays open");
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
