//! Many clients with interleaved tokens on one resource; what the storage accepted is then checked
//! from outside.

use std::sync::Arc;

use lock_client::storage::{Answer, Storage};
use testbed::{Postgres, StorageServer};
use tokio::task::JoinSet;

use crate::programs::storage_server;
use crate::{
    fences::{Counter, new_fence},
    names::name,
};

const CLIENTS: usize = 16;
const WRITES: usize = 40;

/// A write that the storage accepted: the version that it made, and its token, which is its value.
type Accepted = (u64, u64);

/// Has clients take tokens, two at a time, and write with them; every other time the later token
/// comes first, so that it overtakes the other one.
async fn hammer(servers: &[&StorageServer]) -> Vec<Accepted> {
    let tokens = Arc::new(Counter::default());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let storage = Storage::new(servers[client % servers.len()].url()).unwrap();
        let tokens = tokens.clone();
        clients.spawn(async move {
            let mut accepted = Vec::new();
            for round in 0..WRITES / 2 {
                let mut fences = [tokens.next(), tokens.next()];
                if (client + round) % 2 == 0 {
                    fences.reverse();
                }
                for fence in fences {
                    let value = fence.token.to_string();
                    let answer = storage.write(&name("hot"), &fence, "text/plain", value).await;
                    if let Answer::Accepted(version) = answer.unwrap() {
                        accepted.push((version, fence.token.as_u64()));
                    }
                }
            }
            accepted
        });
    }
    let mut accepted: Vec<_> = clients.join_all().await.into_iter().flatten().collect();
    accepted.sort_unstable();
    accepted
}

/// How often a write was accepted after one with a higher token.
fn stale_writes(accepted: &[Accepted]) -> usize {
    accepted.windows(2).filter(|pair| pair[1].1 < pair[0].1).count()
}

fn assert_versions_have_no_gaps(accepted: &[Accepted]) {
    let versions: Vec<_> = accepted.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, (1..=accepted.len() as u64).collect::<Vec<_>>());
}

async fn assert_the_last_accepted_write_is_there(server: &StorageServer, accepted: &[Accepted]) {
    let storage = Storage::new(server.url()).unwrap();
    let value = storage.read(&name("hot")).await.unwrap().unwrap();
    let (version, token) = *accepted.last().unwrap();
    assert_eq!((value.version, value.bytes), (version, token.to_string().into()));
}

#[tokio::test]
async fn two_servers_on_one_postgres_accept_tokens_in_order() {
    let postgres = Postgres::start().await.unwrap();
    let one = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let accepted = hammer(&[&one, &other]).await;
    assert!(accepted.len() < CLIENTS * WRITES, "some writes were late");
    assert_eq!(stale_writes(&accepted), 0);
    assert_versions_have_no_gaps(&accepted);
    assert_the_last_accepted_write_is_there(&one, &accepted).await;
    assert_the_last_accepted_write_is_there(&other, &accepted).await;
}

#[tokio::test]
async fn sqlite_accepts_tokens_in_order() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let accepted = hammer(&[&server]).await;
    assert!(accepted.len() < CLIENTS * WRITES, "some writes were late");
    assert_eq!(stale_writes(&accepted), 0);
    assert_versions_have_no_gaps(&accepted);
    assert_the_last_accepted_write_is_there(&server, &accepted).await;
}

/// The negative control: the same hammer finds what the fence prevents.
#[tokio::test]
async fn without_enforcement_the_same_hammer_finds_stale_writes() {
    let postgres = Postgres::start().await.unwrap();
    let off = ["--enforcement", "off"];
    let one = StorageServer::start_on(&storage_server(), &postgres.url(), &off).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &off).await.unwrap();
    let accepted = hammer(&[&one, &other]).await;
    assert_eq!(accepted.len(), CLIENTS * WRITES, "nothing is rejected");
    assert!(stale_writes(&accepted) > 0);
    assert_versions_have_no_gaps(&accepted);
}

/// Where commits are slow, a server that has just won a resource is ready for it again long before
/// a rival has seen the outcome.
#[tokio::test]
async fn no_server_is_starved_on_a_hot_resource() {
    let slow_commits = ["commit_delay=10000", "commit_siblings=0"];
    let postgres = Postgres::start_with(&slow_commits).await.unwrap();
    let busy = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let fence = new_fence(34);
    let mut load = JoinSet::new();
    for _ in 0..CLIENTS {
        let (storage, fence) = (Storage::new(busy.url()).unwrap(), fence.clone());
        load.spawn(async move {
            loop {
                let answer = storage.write(&name("hot"), &fence, "text/plain", "x").await;
                assert!(matches!(answer.unwrap(), Answer::Accepted(_)));
            }
        });
    }
    let storage = Storage::new(other.url()).unwrap();
    for _ in 0..10 {
        let answer = storage.write(&name("hot"), &fence, "text/plain", "y").await;
        assert!(matches!(answer.unwrap(), Answer::Accepted(_)));
    }
    assert!(load.try_join_next().is_none(), "the load has gone on");
}
