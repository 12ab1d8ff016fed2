//! Which waiters a release notifies, and the connection over which they are notified.

use std::{
    fs,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use lock_client::{Order, backend::Backend, postgres::Postgres};
use sqlx::{
    AssertSqlSafe, Connection, Executor, PgConnection,
    postgres::{PgListener, PgPoolOptions},
};
use testbed::{
    Proxy,
    proxy::{Rule, Verdict},
    wait::until_async,
};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    select,
    time::{sleep, timeout},
};

use super::{failures::listens, locked, locked_with};
use crate::{
    names::name,
    sql::{busy, granted},
};

const SOON: Duration = Duration::from_secs(30);

async fn connect(server: &testbed::Postgres) -> PgConnection {
    PgConnection::connect(&server.url()).await.unwrap()
}

/// Which of two releases begins first.
#[derive(Clone, Copy, Debug)]
enum First {
    Owner,
    Head,
}

/// The owner releases, and the first of two fair waiters leaves. Neither transaction sees the changes
/// of the other until it ends. Returns whether the second waiter is notified.
async fn second_waiter_is_notified(first: First, change: impl Fn(&str) -> String) -> bool {
    let (server, client) = locked_with(&[], change).await;
    let [owner, head, next] = [(); 3].map(|()| Holder::random());
    granted(&client, "r", &owner, 600_000).await.unwrap();
    for waiter in [&head, &next] {
        busy(&client, "r", waiter, Order::Fair).await.unwrap();
    }
    let pool = PgPoolOptions::new().max_connections(1).connect(&server.url()).await.unwrap();
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen("fenced_lock").await.unwrap();
    let release = |holder: &Holder| {
        AssertSqlSafe(format!("select fenced_lock.release('r', '{}')", holder.as_str()))
    };
    let (early, late) = match first {
        First::Owner => (&owner, &head),
        First::Head => (&head, &owner),
    };
    // 1. One release is not committed yet.
    let (mut earlier, mut later) = (connect(&server).await, connect(&server).await);
    let mut transaction = earlier.begin().await.unwrap();
    transaction.execute(release(early)).await.unwrap();
    // 2. The other one ends, or waits for it.
    let mut releasing = pin!(later.execute(release(late)));
    let waits = until_async(SOON, async || {
        let mut observer = connect(&server).await;
        let query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        Ok(sqlx::query_scalar::<_, i64>(query).fetch_one(&mut observer).await? == 1)
    });
    let ended = select! {
        released = &mut releasing => { released.unwrap(); true }
        waits = waits => { waits.unwrap(); false }
    };
    transaction.commit().await.unwrap();
    if !ended {
        releasing.await.unwrap();
    }
    // 3. A notification of another session follows all of theirs.
    connect(&server).await.execute("notify fenced_lock, 'end'").await.unwrap();
    let expected = format!("{} r", &next.as_str()[..8]);
    loop {
        let notification = timeout(SOON, listener.recv()).await.unwrap().unwrap();
        match notification.payload() {
            "end" => return false,
            payload if payload == expected => return true,
            _ => {}
        }
    }
}

#[tokio::test]
async fn second_waiter_is_notified_if_the_first_one_leaves_during_a_release() {
    for first in [First::Owner, First::Head] {
        assert!(second_waiter_is_notified(first, str::to_owned).await, "{first:?} first");
    }
    let no_lock = |sql: &str| {
        let part = "perform from fenced_lock.lock l where l.name = release.name for update;";
        assert!(sql.contains(part));
        sql.replace(part, "")
    };
    assert!(!second_waiter_is_notified(First::Owner, no_lock).await);
}

/// A waiter that leaves does not keep the owner from renewing for long: it locks the row only briefly,
/// and one that is not in the queue does not lock it at all.
#[tokio::test]
async fn holder_that_is_not_in_the_queue_does_not_lock_the_row() {
    let (server, client) = locked().await;
    let owner = Holder::random();
    granted(&client, "r", &owner, 600_000).await.unwrap();
    let mut connection = connect(&server).await;
    let mut transaction = connection.begin().await.unwrap();
    transaction.execute("select fenced_lock.release('r', 'nobody')").await.unwrap();
    granted(&client, "r", &owner, 600_000).await.unwrap();
    transaction.rollback().await.unwrap();
}

/// A connection that is silent once is no PgBouncer: the client soon listens again.
#[tokio::test]
async fn silence_is_not_taken_for_a_pooler() {
    let (server, _) = locked().await;
    let proxy = Proxy::start(server.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let client = Postgres::open(&url).unwrap();
    // The client checks that a notification of its own arrives. It is silent.
    let probe = proxy.hold("pg_notify");
    let (lock, holder) = (name("r"), Holder::random());
    let subscribing = tokio::spawn(async move {
        let wakeups = client.subscribe(&lock, &holder, Order::Unordered).await;
        (client, wakeups)
    });
    let probe = probe.caught().await.unwrap();
    let (_client, _wakeups) = subscribing.await.unwrap();
    until_async(SOON, async || listens(&server).await).await.unwrap();
    probe.deliver();
}

/// A client connects to a server that fails, again and again, but not when nobody waits any more.
#[tokio::test]
async fn client_without_waiters_connects_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = Postgres::open(&format!("postgres://postgres@{address}/postgres")).unwrap();
    let (lock, holder) = (name("r"), Holder::random());
    let mut subscribing = pin!(client.subscribe(&lock, &holder, Order::Unordered));
    let mut connections = 0;
    let wakeups = loop {
        select! {
            subscribed = &mut subscribing => break subscribed.unwrap(),
            // It is closed at once.
            accepted = listener.accept() => { accepted.unwrap(); connections += 1 }
        }
    };
    assert!(connections > 0);
    drop(wakeups);
    // The longest pause is 1.5 seconds. One more attempt may be under way.
    let mut late = 0;
    let mut quiet = pin!(sleep(Duration::from_secs(6)));
    loop {
        select! {
            () = &mut quiet => break,
            accepted = listener.accept() => { accepted.unwrap(); late += 1 }
        }
    }
    assert!(late <= 1, "{late} connections without a waiter");
}

/// Delays the requests to listen, and to listen no more, as long as this is true.
#[derive(Debug)]
struct Silence(Arc<AtomicBool>);

impl Rule for Silence {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let is_silent =
            self.0.load(Ordering::SeqCst) && String::from_utf8_lossy(request).contains("LISTEN");
        if is_silent { Verdict::Delay(Duration::from_secs(3_600)) } else { Verdict::Pass }
    }
}

/// Counts the connections to an address of 127.0.0.1 that their clients keep open.
fn open_connections(address: SocketAddr) -> usize {
    // The last is the state of the socket: its connection is established.
    let established = format!("0100007F:{:04X} 01 ", address.port());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.lines().filter(|socket| socket.contains(&established)).count()
}

/// A silent connection can't be told that nobody listens over it any more. It is closed all the same.
#[tokio::test]
async fn few_connections_listen_in_silence() {
    const ATTEMPTS: usize = 6;
    let (server, _) = locked().await;
    let proxy = Proxy::start(server.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let is_silent = Arc::new(AtomicBool::new(true));
    proxy.add(Silence(is_silent.clone()));
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    let client = Postgres::open(&url).unwrap().answer_within(Duration::from_millis(100));
    let (lock, holder) = (name("r"), Holder::random());
    let _wakeups = client.subscribe(&lock, &holder, Order::Unordered).await.unwrap();
    let attempts = async || Ok(proxy.requests("LISTEN \"fenced_lock_probe") >= ATTEMPTS);
    until_async(SOON, attempts).await.unwrap();
    // One listens, one may look for the primary, and one sends tries.
    let open = open_connections(proxy.address());
    assert!((1..=3).contains(&open), "{open} connections after {ATTEMPTS} attempts");
    // The client listens to releases only once a notification has arrived.
    is_silent.store(false, Ordering::SeqCst);
    until_async(SOON, async || listens(&server).await).await.unwrap();
}

/// The listener ends with the runtime of the waiter that has started it.
#[tokio::test]
async fn waiter_of_another_runtime_listens_again() {
    let (server, client) = locked().await;
    let (lock, ending) = (name("r"), Runtime::new().unwrap());
    let first = ending.spawn({
        let (client, lock) = (client.clone(), lock.clone());
        async move { client.subscribe(&lock, &Holder::random(), Order::Unordered).await }
    });
    let _first = first.await.unwrap().unwrap();
    let _second = client.subscribe(&lock, &Holder::random(), Order::Unordered).await.unwrap();
    until_async(SOON, async || listens(&server).await).await.unwrap();
    let before = listeners(&server).await.unwrap();
    ending.shutdown_background();
    until_async(SOON, async || {
        let now = listeners(&server).await?;
        Ok(!now.is_empty() && now != before)
    })
    .await
    .expect("nobody listens");
}

/// The processes of the sessions that listen to releases.
async fn listeners(server: &testbed::Postgres) -> anyhow::Result<Vec<i32>> {
    let query = r#"select pid from pg_stat_activity where query = 'LISTEN "fenced_lock"'"#;
    Ok(sqlx::query_scalar(query).fetch_all(&mut connect(server).await).await?)
}
