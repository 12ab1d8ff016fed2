//! Turns of clients: each has a share of the reads of large values, and of the lists, that a store takes at once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use axum::http::Extensions;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::values::Freshness;
use crate::{access::Caller, connections::client_address, rate_limit::Client, store::ReadsAtOnce};

/// How long a read waits for all its turns, as an operation does in the queue.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// The turns of all clients that read large values, or list.
#[derive(Debug)]
pub(super) struct Turns {
    visible: Shares,
    durable: Shares,
    lists: Shares,
}

/// A turn, which lasts until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _of_client: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new(ReadsAtOnce { visible, durable, lists }: ReadsAtOnce) -> Self {
        Self {
            visible: Shares::new(visible),
            durable: Shares::new(durable),
            // No small read needs one of these connections.
            lists: Shares::new(lists + 1),
        }
    }

    /// When a read that begins now has waited for its turns for too long.
    pub(super) fn deadline() -> Instant {
        Instant::now() + LONGEST_WAIT
    }

    /// Waits for a turn of the client. `None` if that takes too long.
    pub(super) async fn take(
        &self,
        client: &Client,
        freshness: Freshness,
        deadline: Instant,
    ) -> Option<Turn> {
        let shares = match freshness {
            Freshness::Visible | Freshness::Version(_) => &self.visible,
            Freshness::Durable => &self.durable,
        };
        timeout_at(deadline, shares.take(client)).await.ok()
    }

    /// Waits until the client may list. `None` if that takes too long.
    pub(super) async fn take_for_list(&self, client: &Client) -> Option<Turn> {
        timeout_at(Self::deadline(), self.lists.take(client)).await.ok()
    }
}

/// The shares of clients in the connections for one kind of reads.
#[derive(Debug)]
struct Shares {
    /// All but one of the connections: small reads have that one, and are quick. So a turn has a connection
    /// at once, or soon.
    of_all: Arc<Semaphore>,
    of_client: usize,
    /// The turns that each client has left.
    clients: Mutex<HashMap<Client, Weak<Semaphore>>>,
}

impl Shares {
    fn new(connections: usize) -> Self {
        Self {
            of_all: Arc::new(Semaphore::new(connections.saturating_sub(1).max(1))),
            of_client: (connections / 2).max(1),
            clients: Mutex::default(),
        }
    }

    /// The client's own turns come first: those that wait for one are in nobody else's way.
    async fn take(&self, client: &Client) -> Turn {
        let of_client = self.of_client(client).acquire_owned().await;
        let of_all = self.of_all.clone().acquire_owned().await;
        let never_closed = "it is never closed";
        Turn { _of_client: of_client.expect(never_closed), _of_all: of_all.expect(never_closed) }
    }

    fn of_client(&self, client: &Client) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().expect("no panic while it is held");
        if let Some(turns) = clients.get(client).and_then(Weak::upgrade) {
            return turns;
        }
        clients.retain(|_, turns| turns.strong_count() > 0);
        let new = Arc::new(Semaphore::new(self.of_client));
        clients.insert(client.clone(), Arc::downgrade(&new));
        new
    }
}

/// The client that a request counts for: its identity, or its address without one.
pub(super) fn client(caller: Option<&Caller>, extensions: &Extensions) -> Client {
    match caller.and_then(Caller::identity_name) {
        Some(name) => Client::Identity(name),
        None => Client::from_address(client_address(extensions)),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn identity(name: &str) -> Client {
        Client::Identity(name.to_owned())
    }

    fn turns(durable: usize) -> Turns {
        Turns::new(ReadsAtOnce { visible: 2, durable, lists: 1 })
    }

    #[tokio::test(start_paused = true)]
    async fn client_with_many_loads_holds_up_no_other() {
        let turns = turns(6);
        let (greedy, other) = (identity("greedy"), identity("other"));
        let take = async |client| turns.take(client, Freshness::Durable, Turns::deadline()).await;
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(take(&greedy).await.unwrap());
        }
        assert!(take(&greedy).await.is_none());
        assert!(take(&other).now_or_never().unwrap().is_some());
        taken.pop();
        assert!(take(&greedy).now_or_never().unwrap().is_some());
    }

    /// However many clients there are, one connection is left to small reads, and those of the other kind
    /// have connections of their own.
    #[tokio::test(start_paused = true)]
    async fn clients_with_many_loads_leave_a_connection() {
        for connections in 2..9 {
            let turns = turns(connections);
            let mut taken = Vec::new();
            for client in ["first", "second", "third"].repeat(3) {
                let deadline = Turns::deadline();
                taken.extend(turns.take(&identity(client), Freshness::Durable, deadline).await);
            }
            assert_eq!(taken.len(), connections - 1);
            let first = identity("first");
            let visible = turns.take(&first, Freshness::Visible, Turns::deadline());
            assert!(visible.await.is_some());
        }
    }

    /// With one connection, too: of the clients that wait, each waits with one list only.
    #[tokio::test(start_paused = true)]
    async fn client_with_many_lists_holds_up_no_other() {
        let turns = turns(2);
        let (greedy, other) = (identity("greedy"), identity("other"));
        let first = turns.take_for_list(&greedy).await.unwrap();
        let mut waiting: Vec<_> = (0..9).map(|_| Box::pin(turns.take_for_list(&greedy))).collect();
        for list in &mut waiting {
            assert!(list.as_mut().now_or_never().is_none());
        }
        let mut next = Box::pin(turns.take_for_list(&other));
        assert!(next.as_mut().now_or_never().is_none());
        drop(first);
        // The greedy client's second one now waits behind the other client.
        for list in &mut waiting {
            assert!(list.as_mut().now_or_never().is_none());
        }
        assert!(next.as_mut().now_or_never().unwrap().is_some());
    }

    #[tokio::test]
    async fn clients_without_a_turn_are_forgotten() {
        let shares = Shares::new(4);
        for number in 0..1000 {
            drop(shares.take(&identity(&number.to_string())).await);
        }
        let _kept = shares.take(&identity("kept")).await;
        drop(shares.take(&identity("last")).await);
        assert_eq!(shares.clients.lock().unwrap().len(), 2);
    }
}
