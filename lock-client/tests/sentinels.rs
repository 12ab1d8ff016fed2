//! Sentinels that disagree, that are wrong, or that say nothing. Each speaks from a script.

use std::{net::SocketAddr, time::Duration};

use lock_client::{AcquireError, Lease, Locks};
use testbed::{Proxy, Redis, proxy::Latency};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    lock_service::{impatient_locks, locks, tried, ttl, with_causes},
    names::name,
};

const SOON: Duration = Duration::from_secs(30);

/// A port that accepts connections, and never answers.
async fn mute() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A Sentinel that answers `SENTINEL MASTERS` with this, and later than others by this delay.
async fn scripted(answer: String, delay: Duration) -> SocketAddr {
    let (listener, address) = mute().await;
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(serve(connection, answer.clone(), delay));
        }
    });
    address
}

async fn serve(mut connection: TcpStream, answer: String, delay: Duration) {
    let mut request = [0; 4096];
    while let Ok(length @ 1..) = connection.read(&mut request).await {
        let request = String::from_utf8_lossy(&request[..length]);
        // A new connection names its library first.
        let mut answers = "+OK\r\n".repeat(request.matches("SETINFO").count());
        if request.contains("MASTERS") {
            sleep(delay).await;
            answers += &answer;
        }
        if connection.write_all(answers.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The answer of a Sentinel that names this server as the primary `locks`.
fn naming(server: SocketAddr, flags: &str, epoch: u64) -> String {
    let (ip, port, epoch) = (server.ip().to_string(), server.port().to_string(), epoch.to_string());
    let fields = [
        ["name", "locks"],
        ["ip", &ip],
        ["port", &port],
        ["flags", flags],
        ["config-epoch", &epoch],
    ];
    let texts: String =
        fields.concat().iter().map(|text| format!("${}\r\n{text}\r\n", text.len())).collect();
    format!("*1\r\n*{}\r\n{texts}", 2 * fields.len())
}

/// A Sentinel that names this server.
async fn names_it(server: SocketAddr, epoch: u64) -> SocketAddr {
    scripted(naming(server, "master", epoch), Duration::ZERO).await
}

fn url(sentinels: &[SocketAddr]) -> String {
    let sentinels: Vec<_> = sentinels.iter().map(ToString::to_string).collect();
    format!("redis+sentinel://{}/locks", sentinels.join(","))
}

fn address(redis: &Redis) -> SocketAddr {
    redis.address().unwrap()
}

/// Tries once.
async fn tries(locks: &Locks) -> Result<Lease, AcquireError> {
    locks.acquire(&name("r"), tried(60_000)).await
}

#[track_caller]
fn assert_unavailable(outcome: Result<Lease, AcquireError>, reason: &str) {
    let error = outcome.expect_err("there is no primary");
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error:?}");
    let text = with_causes(&error);
    assert!(text.contains(reason) && !text.contains("MasterName"), "{text}");
}

/// Whether this server, and not another, grants locks through these Sentinels.
async fn grants(redis: &Redis, sentinels: &[SocketAddr]) -> bool {
    let lease = tries(&locks(&url(sentinels))).await.unwrap();
    let is_here = redis.command::<bool>(&["EXISTS", "fenced:{r}:lock"]).await.unwrap();
    lease.release().await.unwrap();
    is_here
}

#[tokio::test]
async fn replica_that_a_sentinel_names_is_not_used() {
    let primary = Redis::start_on_tcp(&[]).await.unwrap();
    let port = address(&primary).port().to_string();
    let replica = Redis::start_on_tcp(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    let reason = format!("they name {}, which is not the primary", address(&replica));
    let wrong = names_it(address(&replica), 0).await;
    assert_unavailable(tries(&locks(&url(&[wrong]))).await, &reason);
    // The control.
    assert!(grants(&primary, &[names_it(address(&primary), 0).await]).await);
}

/// Another Sentinel may be cut off from the others, together with an earlier primary.
#[tokio::test]
async fn server_that_a_majority_does_not_name_is_not_used_while_the_other_hangs() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let (_silent, hanging) = mute().await;
    let (one, two) = (names_it(hanging, 1).await, names_it(hanging, 1).await);
    let apart = names_it(address(&redis), 1).await;
    let outcome = tries(&impatient_locks(&url(&[apart, one, two]))).await;
    assert_unavailable(outcome, &hanging.to_string());
    assert!(!redis.command::<bool>(&["EXISTS", "fenced:{r}:token"]).await.unwrap());
    // The control: its configuration is newer, and the server of the majority was demoted.
    let port = address(&redis).port().to_string();
    let demoted = Redis::start_on_tcp(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    let slow = naming(address(&demoted), "master", 1);
    let slow = scripted(slow, Duration::from_millis(100)).await;
    let newer = names_it(address(&redis), 2).await;
    assert!(grants(&redis, &[slow, slow, newer]).await);
}

#[tokio::test]
async fn primary_that_a_sentinel_reports_as_leaving_is_not_used() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    for flags in ["s_down,master", "s_down,o_down,master", "master,failover_in_progress"] {
        let answer = naming(address(&redis), flags, 0);
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(scripted(answer.clone(), Duration::ZERO).await);
        }
        let reason = format!("reports {} as {flags}", address(&redis));
        assert_unavailable(tries(&locks(&url(&sentinels))).await, &reason);
    }
    // The control.
    assert!(grants(&redis, &[names_it(address(&redis), 0).await]).await);
}

/// The first Sentinel is cut off from the others, together with the old primary.
#[tokio::test]
async fn primary_that_most_sentinels_report_as_down_is_not_used() {
    let [old, new] =
        [Redis::start_on_tcp(&[]).await.unwrap(), Redis::start_on_tcp(&[]).await.unwrap()];
    let down = naming(address(&old), "s_down,o_down,master", 1);
    let mut sentinels = vec![names_it(address(&old), 1).await];
    for _ in 0..2 {
        sentinels.push(scripted(down.clone(), Duration::from_millis(100)).await);
    }
    assert_unavailable(tries(&locks(&url(&sentinels))).await, "as s_down,o_down,master");
    // The controls: one Sentinel that has not reached it beside two that have; and one that knows its
    // successor.
    let unreached = scripted(naming(address(&old), "s_down,master", 1), Duration::ZERO).await;
    let others = [unreached, names_it(address(&old), 1).await, names_it(address(&old), 1).await];
    assert!(grants(&old, &others).await);
    sentinels[0] = names_it(address(&new), 2).await;
    assert!(grants(&new, &sentinels).await);
}

#[tokio::test]
async fn most_sentinels_decide_however_fast_the_others_are() {
    let [one, other] =
        [Redis::start_on_tcp(&[]).await.unwrap(), Redis::start_on_tcp(&[]).await.unwrap()];
    for (many, few) in [(&one, &other), (&other, &one)] {
        let mut sentinels = vec![names_it(address(few), 1).await];
        for _ in 0..2 {
            let slow = naming(address(many), "master", 1);
            sentinels.push(scripted(slow, Duration::from_millis(100)).await);
        }
        assert!(grants(many, &sentinels).await);
    }
}

#[tokio::test]
async fn newer_configuration_decides_between_as_many_sentinels() {
    let [one, other] =
        [Redis::start_on_tcp(&[]).await.unwrap(), Redis::start_on_tcp(&[]).await.unwrap()];
    for (new, old) in [(&one, &other), (&other, &one)] {
        let slow = scripted(naming(address(new), "master", 2), Duration::from_millis(100)).await;
        assert!(grants(new, &[names_it(address(old), 1).await, slow]).await);
        assert!(grants(new, &[slow, names_it(address(old), 1).await]).await);
    }
}

#[tokio::test]
async fn server_that_hangs_and_that_one_sentinel_names_is_left_for_another() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let (_hanging, silent) = mute().await;
    let (wrong, right) = (names_it(silent, 1).await, names_it(address(&redis), 1).await);
    for sentinels in [[wrong, right], [right, wrong]] {
        let (locks, r) = (impatient_locks(&url(&sentinels)), name("r"));
        let acquired = timeout(SOON, locks.acquire(&r, ttl(60_000))).await;
        acquired.unwrap().unwrap().release().await.unwrap();
    }
    // The controls. A server that was replaced is not used again, though the new one hangs.
    assert_unavailable(tries(&impatient_locks(&url(&[wrong]))).await, &silent.to_string());
    let newer = [names_it(silent, 2).await, right];
    assert_unavailable(tries(&impatient_locks(&url(&newer))).await, &silent.to_string());
}

#[tokio::test]
async fn sentinel_that_hangs_delays_no_majority() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let (_hanging, silent) = mute().await;
    let [one, other] = [names_it(address(&redis), 1).await, names_it(address(&redis), 1).await];
    let patient =
        |url: &str| Locks::new(lock_client::redis::Redis::open(url).unwrap().answer_within(SOON));
    let locks = patient(&url(&[silent, one, other]));
    let lease = timeout(SOON / 2, tries(&locks)).await.expect("it is not waited for").unwrap();
    lease.release().await.unwrap();
    // The control: it hangs.
    let alone = impatient_locks(&url(&[silent]));
    assert_unavailable(tries(&alone).await, &silent.to_string());
}

#[tokio::test]
async fn sentinel_that_rejects_decides_nothing_while_others_are_down() {
    let rejects = "-NOAUTH Authentication required.\r\n".to_owned();
    let rejects = scripted(rejects, Duration::ZERO).await;
    let (closed, down) = mute().await;
    drop(closed);
    for sentinels in [[rejects, down], [down, rejects]] {
        let outcome = tries(&locks(&url(&sentinels))).await;
        assert_unavailable(outcome, &format!("found: the Sentinel at {rejects}: \"NOAUTH\""));
    }
    // The control: nothing else may come of it.
    let error = tries(&locks(&url(&[rejects]))).await.unwrap_err();
    assert!(matches!(error, AcquireError::Rejected { .. }), "{error:?}");
}

/// Otherwise, a wrong password would be tried for ever.
#[tokio::test]
async fn primary_that_rejects_decides_though_a_minority_of_the_sentinels_is_down() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let _: String = redis.command(&["CONFIG", "SET", "requirepass", "secret"]).await.unwrap();
    let (closed, down) = mute().await;
    drop(closed);
    let slow = naming(address(&redis), "master", 1);
    let slow = scripted(slow, Duration::from_millis(100)).await;
    let error = tries(&locks(&url(&[down, slow, slow]))).await.unwrap_err();
    assert!(matches!(error, AcquireError::Rejected { .. }), "{error:?}");
    // The control: the one that is down may know another primary.
    assert_unavailable(tries(&locks(&url(&[down, slow]))).await, "NOAUTH");
}

#[tokio::test]
async fn unknown_name_is_reported_though_a_sentinel_hangs() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let (_hanging, silent) = mute().await;
    let sentinel = names_it(address(&redis), 1).await;
    let wrong = url(&[silent, sentinel]).replace("/locks", "/lokcs");
    let reason = format!("the Sentinel at {sentinel} knows no primary `lokcs`");
    assert_unavailable(tries(&impatient_locks(&wrong)).await, &reason);
}

#[tokio::test]
async fn primary_that_many_sentinels_name_is_asked_once() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    proxy.add(Latency(Duration::from_millis(100)));
    let mut sentinels = Vec::new();
    for _ in 0..3 {
        sentinels.push(names_it(proxy.address(), 1).await);
    }
    tries(&locks(&url(&sentinels))).await.unwrap().release().await.unwrap();
    assert_eq!(proxy.requests("ROLE"), 1);
}
