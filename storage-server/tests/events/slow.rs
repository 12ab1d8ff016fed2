//! Clients that read slowly, and streams in which nothing happens.

use std::time::{Duration, Instant};

use serde_json::json;
use testbed::StorageServer;
use tokio::{net::TcpSocket, time::timeout};

use super::{KEPT, MAX_WRITES, Watching, decide_many, write};
use crate::{programs::storage_server, wire, world::World};

/// What the system holds for a client.
const BUFFER_BYTES: u32 = 4 << 10;
/// The bytes by which names are longer, and so events.
const PADDING: usize = 400;
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a client may read nothing before the server cuts it off.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(20);

/// A server, and a client for which the system holds little.
async fn watched_slowly() -> (World, Watching) {
    let world = World::on_sqlite(&[]).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(BUFFER_BYTES).unwrap();
    let connection = socket.connect(world.server.address()).await.unwrap();
    let mut slow = Watching::on(connection, &[]).await;
    assert_eq!(slow.next().await.unwrap().name, "begin");
    (world, slow)
}

#[tokio::test]
async fn slow_client_learns_that_it_has_missed_events_and_goes_on_with_those_that_are_kept() {
    // More than what is kept, and what is on its way to the client: on Linux, up to 4 MiB.
    let transactions = 3 * KEPT / MAX_WRITES;
    let padding = "x".repeat(PADDING);
    let mut tries = 0..5;
    let (World { server, .. }, mut slow) = loop {
        tries.next().expect("a machine that is less busy");
        let (world, slow) = watched_slowly().await;
        let begun = Instant::now();
        for number in 0..transactions {
            decide_many(&world.server, &format!("{number}/{padding}")).await;
        }
        // On a machine that is too busy, the server may have cut off the client: this begins again.
        if begun.elapsed() < UNREAD_TIMEOUT {
            break (world, slow);
        }
    };
    let mut read = 0;
    let missed = loop {
        let event = timeout(PATIENCE, slow.next()).await.expect("an event in time");
        let event = event.expect("the stream goes on");
        if !event.name.is_empty() {
            break event;
        }
        let (transaction, write) = (read / MAX_WRITES, read % MAX_WRITES);
        assert_eq!(
            event.data["resource"],
            format!("{transaction}/{padding}{write}"),
            "none is left out"
        );
        read += 1;
    };
    assert_eq!((&*missed.name, &missed.data), ("missed", &json!({"reason": "slow"})));
    assert!(read > 0 && read + KEPT < transactions * MAX_WRITES, "{read}");
    // The rest comes without a gap, up to the last one.
    let first = slow.resources(1).await.remove(0);
    let (transaction, write) = first.split_once(&format!("/{padding}")).unwrap();
    let [transaction, write]: [usize; 2] = [transaction, write].map(|it| it.parse().unwrap());
    let first = transaction * MAX_WRITES + write;
    assert!(first > read);
    let rest = slow.resources(transactions * MAX_WRITES - first - 1).await;
    let last = format!("{}/{padding}{}", transactions - 1, MAX_WRITES - 1);
    assert_eq!(rest.last(), Some(&last));
    // It knows its place again.
    let (mut again, begin) = Watching::after(&server, &missed.id).await;
    assert_eq!(begin.data, json!({"resumed": true}));
    assert_eq!(again.resources(rest.len() + 1).await.last(), Some(&last));
}

/// Idle connections are closed after 20 s, and so are those whose clients read nothing for as long.
#[tokio::test]
async fn stream_in_which_nothing_happens_stays_open() {
    let server =
        StorageServer::start(&storage_server(), &["--max-connections", "4"]).await.unwrap();
    let (mut watching, begin) = Watching::start(&server).await;
    for _ in 0..3 {
        let alive = watching.next_or_alive().await.unwrap();
        assert!(alive.data.is_null() && alive.id == begin, "{alive:?}");
    }
    // It is not closed so that others can connect.
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(wire::connect(server.url()).await);
    }
    assert_eq!(write(&server, "r", 1).await, 201);
    assert_eq!(watching.resources(1).await, ["r"]);
}
