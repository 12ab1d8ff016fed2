//! A Redis that is killed without persistence, and comes back with a counter below the fence.

use super::*;
use crate::programs::storage_server;

/// Kills Redis, and starts it again with nothing but a counter.
async fn restart_with_counter(redis: &mut Redis, last: u64) {
    redis.restart().await.unwrap();
    let keys: Vec<String> = redis.command(&["KEYS", "*"]).await.unwrap();
    assert_eq!(keys, [""; 0], "nothing persists");
    set_counter(redis, last).await;
}

/// The first step of a holder.
#[derive(Clone, Copy, Debug)]
enum First {
    Read,
    Write,
    Delete,
}

/// The next token collides with the fence, or is below it.
const RESTARTED_AT: [u64; 2] = [40, 32];

#[tokio::test]
async fn holder_whose_counter_was_lost_continues_with_a_higher_token() {
    for counter in RESTARTED_AT {
        for first in [First::Read, First::Write, First::Delete] {
            heals(counter, first).await;
        }
    }
}

async fn heals(counter: u64, first: First) {
    let case = format!("{first:?} at {counter}");
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let mut redis = redis_before(41).await;
    let before = acquire(&redis).await;
    let resource_before = under(&server, &before);
    assert_eq!(resource_before.write(TEXT, "one").await.unwrap(), 1);
    assert_eq!(fence(&server).await, shown(41, &before));

    restart_with_counter(&mut redis, counter).await;
    let lease = acquire(&redis).await;
    let issued = lease.token().unwrap();
    assert_eq!(issued, token(counter + 1));
    let reason =
        if counter == 40 { RejectionReason::HolderConflict } else { RejectionReason::Stale };
    let unhealed = Storage::new(server.url()).unwrap();
    let unhealed = unhealed.fenced_read(&name("r"), &lease.fence().unwrap()).await.unwrap();
    assert_eq!(unhealed, Answer::Rejected(rejection(reason, counter + 1, 41)), "{case}");

    let resource = under(&server, &lease);
    let then = match first {
        First::Read => {
            assert_eq!(read(&resource).await.unwrap().as_deref(), Some("one"), "{case}");
            Some(("one".to_owned(), 1))
        }
        First::Write => {
            assert_eq!(resource.write(TEXT, "two").await.unwrap(), 2, "{case}");
            Some(("two".to_owned(), 2))
        }
        First::Delete => {
            resource.delete().await.unwrap();
            None
        }
    };
    assert_eq!(lease.token(), Ok(token(42)), "{case}");
    assert_eq!(fence(&server).await, shown(42, &lease), "{case}");
    assert_eq!(kept(&server).await, then, "{case}");
    let held = locks(&redis.url()).status(&name("r")).await.unwrap();
    assert_eq!(held.last_token, Some(42), "{case}: the next client gets a higher one");
    let held = held.held.unwrap();
    assert_eq!((held.token, held.ownership.grant), (token(42), issued), "{case}");

    // The holder from before the restart still believes in its lease, and is rejected.
    assert_eq!(before.token(), Ok(token(41)), "{case}");
    assert_lost(resource_before.write(TEXT, "late").await, Some(stale(41, 42)));
    assert!(before.token().is_err(), "{case}");
    assert_eq!(kept(&server).await, then, "{case}");
}

#[tokio::test]
async fn rejection_after_the_first_accepted_claim_ends_the_lease() {
    for first in [First::Read, First::Write, First::Delete] {
        let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
        let redis = redis_before(33).await;
        let lease = acquire(&redis).await;
        let resource = under(&server, &lease);
        resource.read().await.unwrap();
        let somebody = Fence { token: token(50), holder: fence::Holder::random() };
        let storage = Storage::new(server.url()).unwrap();
        let written = storage.write(&name("r"), &somebody, TEXT, "theirs").await.unwrap();
        assert_eq!(written, Answer::Accepted(1));

        let expected = Some(stale(33, 50));
        match first {
            First::Read => assert_lost(resource.read().await, expected),
            First::Write => assert_lost(resource.write(TEXT, "ours").await, expected),
            First::Delete => assert_lost(resource.delete().await, expected),
        }
        assert!(lease.token().is_err());
        assert_lost(resource.read().await, None);
        assert_eq!(kept(&server).await, Some(("theirs".to_owned(), 1)));
        let status = locks(&redis.url()).status(&name("r")).await.unwrap();
        assert_eq!(status.last_token, Some(33), "{first:?}: nothing was reissued");
    }
}
