//! Several hosts, one of which is the primary.

use std::time::{Duration, Instant};

use fence::Holder;
use lock_client::{
    Locks, Order,
    backend::{Attempt, Backend, BackendError},
    postgres::Postgres,
};
use sqlx::{Connection, Executor, PgConnection};
use testbed::{Proxy, proxy::Latency, wait::until_async};
use tokio::net::TcpListener;

use super::{locked, patient};
use crate::{
    lock_service::{tried, ttl, with_causes},
    names::name,
    sql::{self, granted},
};

const SOON: Duration = Duration::from_secs(60);

/// The replica comes first, and is not taken for the primary. Once it is promoted, it is used.
#[tokio::test]
async fn primary_is_found_and_followed() {
    let (mut primary, _) = locked().await;
    let replica = primary.start_replica().await.unwrap();
    let hosts = testbed::Postgres::url_of_all(&[replica.server(), &primary]);
    let client = patient(&format!("{hosts}?target_session_attrs=read-write"));
    let (first, _) = granted(&client, "r", &Holder::random(), 1_000).await.unwrap();
    replica.catch_up(&primary).await.unwrap();
    let standby = patient(&replica.server().url());
    sql::server_without_writes_answers_nothing(&standby).await.unwrap();
    primary.crash().await.unwrap();
    // The control: without a promotion, nothing is granted.
    let (lock, holder) = (name("r"), Holder::random());
    let tried = client.try_acquire(&lock, &holder, ttl(1_000), Order::Unordered).await;
    assert!(tried.is_err(), "{tried:?}");
    replica.promote().await.unwrap();
    let is_granted = async || {
        let tried = client.try_acquire(&lock, &holder, ttl(1_000), Order::Unordered).await;
        Ok(matches!(tried, Ok(Attempt::Granted { token, .. }) if token > first))
    };
    until_async(SOON, is_granted).await.unwrap();
    // The old primary comes back, and nothing is granted there.
    primary.start_again().await.unwrap();
    for _ in 0..3 {
        let tried = client.try_acquire(&lock, &holder, ttl(60_000), Order::Unordered).await;
        assert!(matches!(tried, Ok(Attempt::Granted { .. })), "{tried:?}");
    }
    let old = patient(&primary.url()).status(&lock).await.unwrap();
    assert!(old.held.is_none_or(|held| held.ownership.holder != holder));
}

/// A failover leaves the old primary running. Once a client knows the newer one, it takes no answer from
/// the old one, over no connection.
#[tokio::test]
async fn held_lock_is_not_renewed_on_an_old_primary() {
    let (old, _) = locked().await;
    let replica = old.start_replica().await.unwrap();
    let new = replica.server();
    let client = patient(&testbed::Postgres::url_of_all(&[&old, new]));
    let (token, ownership) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    replica.catch_up(&old).await.unwrap();
    replica.promote().await.unwrap();
    // The connection that is kept for held locks still leads to the old primary. A try finds the new one.
    granted(&client, "other", &Holder::random(), 600_000).await.unwrap();
    let renewed = client.renew(&name("r"), &ownership, ttl(6_000_000)).await.unwrap();
    assert_eq!(renewed, Some(token));
    for (server, is_renewed) in [(&old, false), (new, true)] {
        let held = patient(&server.url()).status(&name("r")).await.unwrap().held.unwrap();
        assert_eq!(held.remaining > Some(Duration::from_secs(600)), is_renewed, "{held:?}");
    }
}

/// The new primary is far away, and the old one answers long before it.
#[tokio::test]
async fn new_client_waits_for_all_hosts() {
    let (old, _) = locked().await;
    let replica = old.start_replica().await.unwrap();
    replica.promote().await.unwrap();
    let new = replica.server();
    let proxy = Proxy::start(new.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    proxy.add(Latency(Duration::from_millis(250)));
    let near = old.socket_folder().display().to_string().replace('/', "%2F");
    let hosts = format!("{near},{}", proxy.address());
    let client = patient(&format!("postgres://postgres@{hosts}/postgres?sslmode=disable"));
    let holder = Holder::random();
    granted(&client, "r", &holder, 600_000).await.unwrap();
    let held = patient(&new.url()).status(&name("r")).await.unwrap().held;
    assert_eq!(held.expect("it is held there").ownership.holder, holder);
}

/// A host that is down answers nothing. The first request of a client waits for it, and still ends in time.
/// Later ones hardly wait.
#[tokio::test]
async fn host_that_is_down_delays_nothing_for_long() {
    let (primary, _) = locked().await;
    let proxy = Proxy::start(primary.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hosts = format!("{},{}", mute.local_addr().unwrap(), proxy.address());
    let url = format!("postgres://postgres@{hosts}/postgres?sslmode=disable");
    // Each command is a new client.
    let unconnected = || Locks::new(Postgres::open(&url).unwrap());
    unconnected().status(&name("q")).await.unwrap();
    unconnected().acquire(&name("q"), tried(60_000)).await.unwrap().release().await.unwrap();
    let client = patient(&url);
    granted(&client, "q", &Holder::random(), 60_000).await.unwrap();
    for lock in ["r", "s"] {
        proxy.cut();
        proxy.mend();
        let begun = Instant::now();
        granted(&client, lock, &Holder::random(), 60_000).await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    }
}

/// The primary is restarted, and its standby admits nobody. That says nothing about the primary.
#[tokio::test]
async fn host_that_admits_nobody_does_not_speak_for_others() {
    let (mut primary, _) = locked().await;
    let mut observer = PgConnection::connect(&primary.url()).await.unwrap();
    observer.execute("create role locker superuser login").await.unwrap();
    drop(observer);
    // A server that does not know the user answers in the same way.
    let (other, _) = locked().await;
    let hosts = testbed::Postgres::url_of_all(&[&primary, &other]);
    let client = patient(&hosts.replace("//postgres@", "//locker@"));
    primary.crash().await.unwrap();
    let error = client.status(&name("r")).await.unwrap_err();
    assert!(matches!(error, BackendError::Unavailable(_)), "{error:?}");
    assert!(with_causes(&error).contains("locker"), "{error:?}");
    primary.start_again().await.unwrap();
    until_async(SOON, async || Ok(client.status(&name("r")).await.is_ok())).await.unwrap();
}

#[test]
fn hosts_are_named_without_the_password() {
    let client =
        Postgres::open("postgres://me:secret@a,b:5433/locks?target_session_attrs=primary").unwrap();
    assert_eq!(client.address(), "postgres://a:5432,b:5433/locks");
    let error = Postgres::open("postgres://a,b/locks?target_session_attrs=any").unwrap_err();
    assert!(error.to_string().contains("target_session_attrs is \"any\""), "{error}");
}
