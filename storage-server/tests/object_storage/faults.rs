//! Answers and requests that are lost between a server and its store, and a server that is killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use testbed::{
    ObjectStorage, Proxy, StorageServer,
    proxy::{Rule, Verdict},
    wait::until_async,
};

use super::{R, rivals, serve};
use crate::{
    database::{get, offer},
    wire,
};

const PUT: &str = "PUT /fenced";
const GET: &str = "GET /fenced";
const PATIENCE: Duration = Duration::from_secs(60);

/// Loses all requests while it is true.
#[derive(Debug)]
struct CutOff(Arc<AtomicBool>);

impl Rule for CutOff {
    fn on_request(&mut self, _request: &[u8]) -> Verdict {
        if self.0.load(Ordering::Relaxed) { Verdict::Drop } else { Verdict::Pass }
    }
}

/// A server that reaches its store through a proxy, and one that does not.
struct World {
    proxy: Proxy,
    server: StorageServer,
    direct: StorageServer,
}

impl World {
    async fn new(storage: &ObjectStorage, folder: &str) -> Self {
        let proxy = Proxy::start(storage.address()).await.unwrap();
        let through = ObjectStorage::url_through(&proxy.url("http"), folder);
        let (server, direct) = (serve(&through, &[]).await, serve(&storage.url(folder), &[]).await);
        // From then on, the first server writes without a read.
        for version in 1..=3 {
            assert_eq!(offer(&server, "PUT", R, 34, "old").await.json()["version"], version);
        }
        Self { proxy, server, direct }
    }

    fn requests(&self) -> usize {
        self.proxy.requests(PUT) + self.proxy.requests(GET)
    }
}

#[tokio::test]
async fn faults_never_turn_into_wrong_answers() {
    let storage = ObjectStorage::start_seaweedfs().await.unwrap();
    lost_answer_is_read_back(&World::new(&storage, "lost").await).await;
    for claims_first in [true, false] {
        let world = World::new(&storage, &format!("unknown/{claims_first}")).await;
        undecidable_outcome_is_unknown(world, claims_first).await;
    }
    held_register_costs_one_request(&World::new(&storage, "cost").await).await;
    writes_that_wait_share_one_request(&World::new(&storage, "batch").await).await;
    rivals::no_acknowledged_increment_is_lost(&storage).await;
    rivals::increments_without_a_condition_are_lost(&storage).await;
}

async fn lost_answer_is_read_back(World { proxy, server, direct }: &World) {
    proxy.lose_reply_to(PUT);
    let written = offer(server, "PUT", R, 34, "new").await;
    assert!(proxy.has_struck());
    assert_eq!((written.status, &written.json()["version"]), (200, &4.into()));
    assert_eq!(get(direct, R).await.text(), "new");

    proxy.lose_request(PUT);
    let written = offer(server, "PUT", R, 34, "newer").await;
    assert!(proxy.has_struck());
    assert_eq!((written.status, &written.json()["version"]), (200, &5.into()));
    assert_eq!(get(direct, R).await.text(), "newer");

    // A rival has written over it by the time that it is read back.
    let hold = proxy.hold(GET);
    proxy.lose_reply_to(PUT);
    let url = server.url().to_owned();
    let write = tokio::spawn(async move {
        wire::request(&url, "PUT", R, &[("Fencing-Token", "34")], "mine").await
    });
    let mut read = hold.caught().await.unwrap();
    while !proxy.has_struck() {
        // On a slow machine, the server reads before it writes.
        let hold = proxy.hold(GET);
        read.deliver();
        read = hold.caught().await.unwrap();
    }
    assert_eq!(offer(direct, "PUT", R, 35, "rival").await.json()["version"], 7);
    read.deliver();
    let written = write.await.unwrap();
    assert_eq!((written.status, &written.json()["version"]), (200, &6.into()));
    assert_eq!(offer(server, "PUT", R, 34, "late").await.problem(), "412 stale-token");
    assert_eq!(get(server, R).await.text(), "rival");
}

/// The write is held back, and the server can't read back. Its outcome is open, until a higher token claims.
async fn undecidable_outcome_is_unknown(
    World { proxy, server, direct }: World,
    claims_first: bool,
) {
    let hold = proxy.hold(PUT);
    let write = tokio::spawn(async move { (offer(&server, "PUT", R, 34, "new").await, server) });
    let held = hold.caught().await.unwrap();
    // The client of the store repeats requests by itself.
    let is_cut_off = Arc::new(AtomicBool::new(true));
    proxy.add(CutOff(is_cut_off.clone()));
    let late = held.cut();
    let (unknown, server) = write.await.unwrap();
    assert_eq!(unknown.problem(), "503 unavailable");
    assert_eq!(unknown.json()["outcome"], "unknown", "{unknown:?}");
    is_cut_off.store(false, Ordering::Relaxed);
    if claims_first {
        assert_eq!(offer(&direct, "GET", R, 35, "").await.text(), "old");
        assert!(late.deliver().await.unwrap().contains("412"));
        assert_eq!(get(&server, R).await.text(), "old");
    } else {
        assert!(late.deliver().await.unwrap().contains("200"));
        assert_eq!(offer(&direct, "GET", R, 35, "").await.text(), "new");
    }
    assert_eq!(offer(&server, "PUT", R, 34, "late").await.problem(), "412 stale-token");
}

async fn held_register_costs_one_request(world: &World) {
    const WRITES: usize = 40;
    let held = async || {
        let before = world.requests();
        for _ in 0..WRITES {
            assert_eq!(offer(&world.server, "PUT", R, 34, "x").await.status, 200);
        }
        world.requests() - before
    };
    // After a second without a write, the server reads again. A busy machine may take that long.
    let mut rounds = Vec::new();
    while rounds.last().is_none_or(|held| held * 10 > WRITES * 11) {
        assert!(rounds.len() < 10, "{rounds:?} requests for {WRITES} writes");
        rounds.push(held().await);
    }
    // The control: a register that another server writes, too, must be read before each write.
    let before = world.requests();
    for _ in 0..WRITES {
        for server in [&world.server, &world.direct] {
            assert_eq!(offer(server, "PUT", R, 34, "x").await.status, 200);
        }
    }
    let shared = world.requests() - before;
    assert!(shared >= WRITES * 2, "{shared} requests for {WRITES} writes");
}

/// Each still has a decision of its own. A resource whose write is slow holds up no other.
async fn writes_that_wait_share_one_request(World { proxy, server, .. }: &World) {
    const PUT: &str = "PUT /fenced/batch/r/";
    let put = |token: &'static str,
               condition: (&'static str, &'static str),
               value: &'static str| async move {
        let headers = [("Fencing-Token", token), condition];
        let answer = wire::request(server.url(), "PUT", R, &headers, value).await;
        if answer.status == 200 { "200".to_owned() } else { answer.problem() }
    };
    let hold = proxy.hold(PUT);
    let any = ("If-Match", "*");
    let held = async {
        let held = hold.caught().await.unwrap();
        until_async(PATIENCE, async || {
            Ok(get(server, "/metrics").await.text().contains("queued_operations 6\n"))
        })
        .await
        .unwrap();
        assert_eq!(offer(server, "PUT", "/v1/resources/other", 1, "x").await.status, 201);
        let before = proxy.requests(PUT);
        held.deliver();
        before
    };
    let (first, others, before) = tokio::join!(
        put("34", any, "first"),
        async {
            // The first one is on its way to the store by then.
            until_async(PATIENCE, async || Ok(proxy.has_struck())).await.unwrap();
            join_all([
                put("34", any, "a"),
                put("33", any, "late"),
                put("34", ("If-Match", "\"1\""), "b"),
                put("34", any, "c"),
                put("32", any, "late"),
            ])
            .await
        },
        held,
    );
    assert_eq!(first, "200");
    let expected = ["200", "412 stale-token", "412 version-mismatch", "200", "412 stale-token"];
    assert_eq!(others, expected);
    assert_eq!(proxy.requests(PUT) - before, 1);
    assert_eq!(get(server, "/v1/fences/r").await.json()["version"], 6);
}
