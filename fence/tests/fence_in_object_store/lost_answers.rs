//! Answers, requests and reads that are lost between a client and a real S3 server.

use fence::{
    ResourceName,
    object_store::{Register, Registers},
};
use testbed::{ObjectStorage, Proxy};

use super::{applied, is_unknown, offer, real_server::registers, rejected};
use crate::names::name;

const PUT: &str = "PUT /fenced";
const GET: &str = "GET /fenced";

/// A proxy before a server, and a client of the proxy that has claimed a resource with token 34.
struct World {
    proxy: Proxy,
    resource: ResourceName,
    client: Register,
    /// Those pass the proxy by.
    rivals: Registers,
}

/// Makes a world. Its client repeats requests by itself so often.
async fn claimed(server: &ObjectStorage, resource: &str, max_retries: usize) -> World {
    let proxy = Proxy::start(server.address()).await.unwrap();
    let resource = name(resource);
    let mut client = registers(&proxy.url("http"), max_retries).register(&resource);
    assert_eq!(applied(client.claim(&offer(34, "a")).await).version, 1);
    World { proxy, resource, client, rivals: registers(&server.endpoint(), 0) }
}

async fn server() -> ObjectStorage {
    ObjectStorage::start_seaweedfs().await.unwrap()
}

impl World {
    async fn value(&self) -> (u64, Option<String>) {
        let read = self.rivals.register(&self.resource).read().await.unwrap();
        let value = read.value.map(|value| String::from_utf8(value.to_vec()).unwrap());
        (read.version, value)
    }

    /// A rival writes with token 35, while the client waits for its read.
    async fn write_as_rival(&self, times: usize) {
        let mut rival = self.rivals.register(&self.resource);
        for _ in 0..times {
            let _ = applied(rival.write(&offer(35, "b"), "rival".into()).await);
        }
    }
}

/// Also when the store's client repeats the request by itself, and gets a failed condition.
#[tokio::test]
async fn write_whose_answer_was_lost_is_applied_once() {
    let server = server().await;
    for (resource, max_retries) in [("alice", 0), ("bob", 3)] {
        let mut world = claimed(&server, resource, max_retries).await;
        world.proxy.lose_reply_to(PUT);
        let written = applied(world.client.write(&offer(34, "a"), "100".into()).await);
        assert!(world.proxy.has_struck());
        assert_eq!(written.version, 2);
        assert_eq!(world.value().await, (2, Some("100".to_owned())));
        // It goes on where it was.
        let written = applied(world.client.write(&offer(34, "a"), "70".into()).await);
        assert_eq!(written.version, 3);
    }
}

#[tokio::test]
async fn first_claim_whose_answer_was_lost_is_applied_once() {
    let server = server().await;
    let World { proxy, rivals, .. } = &claimed(&server, "alice", 0).await;
    let mut client = registers(&proxy.url("http"), 0).register(&name("bob"));
    proxy.lose_reply_to(PUT);
    assert_eq!(applied(client.claim(&offer(34, "a")).await).version, 1);
    assert!(proxy.has_struck());
    assert_eq!(rivals.register(&name("bob")).read().await.unwrap().version, 1);
}

#[tokio::test]
async fn lost_request_is_sent_again() {
    let server = server().await;
    let mut world = claimed(&server, "alice", 0).await;
    world.proxy.lose_request(PUT);
    let written = applied(world.client.write(&offer(34, "a"), "100".into()).await);
    assert!(world.proxy.has_struck());
    assert_eq!(written.version, 2);
    assert_eq!(world.value().await, (2, Some("100".to_owned())));
}

/// The request that was sent first arrives after the one that was sent again. Its condition fails.
#[tokio::test]
async fn late_copy_of_a_write_changes_nothing() {
    let server = server().await;
    let mut world = claimed(&server, "alice", 0).await;
    let hold = world.proxy.hold(PUT);
    let write = tokio::spawn(async move {
        let written = world.client.write(&offer(34, "a"), "100".into()).await;
        (applied(written), world)
    });
    let late = hold.caught().await.unwrap().cut();
    let (written, mut world) = write.await.unwrap();
    assert_eq!(written.version, 2);
    assert!(late.deliver().await.unwrap().contains("412"));
    let _ = applied(world.client.write(&offer(34, "a"), "70".into()).await);
    assert!(late.deliver().await.unwrap().contains("412"));
    assert_eq!(world.value().await, (3, Some("70".to_owned())));
}

/// The client can't read back. Its write lands later, or never, if a higher token claims first.
#[tokio::test]
async fn unknown_write_may_land_until_a_higher_token_claims() {
    let server = server().await;
    for (resource, claims_first) in [("alice", false), ("bob", true)] {
        let mut world = claimed(&server, resource, 0).await;
        let hold = world.proxy.hold(PUT);
        for _ in 0..2 {
            world.proxy.lose_request(GET);
        }
        let write = tokio::spawn(async move {
            let written = world.client.write(&offer(34, "a"), "100".into()).await;
            (written, world)
        });
        let late = hold.caught().await.unwrap().cut();
        let (written, world) = write.await.unwrap();
        assert!(is_unknown(&written), "{written:?}");

        let mut rival = world.rivals.register(&world.resource);
        if claims_first {
            assert_eq!(applied(rival.claim(&offer(35, "b")).await).value, None);
            assert!(late.deliver().await.unwrap().contains("412"));
            assert_eq!(world.value().await, (2, None));
        } else {
            assert!(late.deliver().await.unwrap().contains("200"));
            let claimed = applied(rival.claim(&offer(35, "b")).await);
            assert_eq!(claimed.value, Some("100".into()));
        }
    }
}

/// The register has the ids of its last 16 writes. A rejection would be a lie if the write had landed.
#[tokio::test]
async fn write_that_others_have_written_over_is_known_until_the_register_forgets_it() {
    let server = server().await;
    for (landed, times) in [(true, 15), (true, 16), (false, 16), (false, 17)] {
        let mut world = claimed(&server, &format!("{landed} {times}"), 0).await;
        let hold = world.proxy.hold(GET);
        match landed {
            true => world.proxy.lose_reply_to(PUT),
            false => world.proxy.lose_request(PUT),
        }
        let mut client = std::mem::replace(&mut world.client, world.rivals.register(&name("none")));
        let write = tokio::spawn(async move { client.write(&offer(34, "a"), "100".into()).await });
        let read = hold.caught().await.unwrap();
        world.write_as_rival(times).await;
        read.deliver();
        let written = write.await.unwrap();
        match (landed, times) {
            (true, 15) => assert_eq!(applied(written).version, 2),
            (false, 16) => assert_eq!(rejected(written).highest_token.as_u64(), 35),
            _ => assert!(is_unknown(&written), "{landed} {times}: {written:?}"),
        }
    }
}

/// The place of the write is taken, so it can't land any more.
#[tokio::test]
async fn lost_write_whose_place_was_taken_is_rejected_and_never_lands() {
    let server = server().await;
    let mut world = claimed(&server, "alice", 0).await;
    let hold_read = world.proxy.hold(GET);
    let hold_write = world.proxy.hold(PUT);
    let mut client = std::mem::replace(&mut world.client, world.rivals.register(&name("none")));
    let write = tokio::spawn(async move { client.write(&offer(34, "a"), "100".into()).await });
    let late = hold_write.caught().await.unwrap().cut();
    let read = hold_read.caught().await.unwrap();
    world.write_as_rival(1).await;
    read.deliver();
    let rejection = rejected(write.await.unwrap());
    assert_eq!(rejection.highest_token.as_u64(), 35);
    assert!(late.deliver().await.unwrap().contains("412"));
    assert_eq!(world.value().await, (2, Some("rival".to_owned())));
}
