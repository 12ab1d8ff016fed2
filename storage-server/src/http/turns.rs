//! Turns of clients: each has a few of the connections over which large values are loaded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use axum::http::Extensions;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{access::Caller, connections::client_address, rate_limit::Client};

/// How many large values are loaded at once for one client. A store has more connections.
const LOADS_OF_A_CLIENT: usize = 2;
/// How long a load waits for its turn.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The turns of all clients that load large values.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Client, Weak<Semaphore>>>);

impl Turns {
    /// Waits for a turn of the client, which lasts until it is dropped. `None` if that takes too long.
    pub(super) async fn take(&self, client: &Client) -> Option<OwnedSemaphorePermit> {
        let turn = self.of(client).acquire_owned();
        timeout(LONGEST_WAIT, turn).await.ok()?.ok()
    }

    fn of(&self, client: &Client) -> Arc<Semaphore> {
        let mut turns = self.0.lock().expect("no panic while it is held");
        if let Some(turns) = turns.get(client).and_then(Weak::upgrade) {
            return turns;
        }
        turns.retain(|_, turns| turns.strong_count() > 0);
        let new = Arc::new(Semaphore::new(LOADS_OF_A_CLIENT));
        turns.insert(client.clone(), Arc::downgrade(&new));
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

    #[tokio::test(start_paused = true)]
    async fn client_with_many_loads_holds_up_no_other() {
        let turns = Turns::default();
        let (greedy, other) = (identity("greedy"), identity("other"));
        let mut taken = Vec::new();
        for _ in 0..LOADS_OF_A_CLIENT {
            taken.push(turns.take(&greedy).await.unwrap());
        }
        assert!(turns.take(&greedy).await.is_none());
        assert!(turns.take(&other).now_or_never().unwrap().is_some());
        taken.pop();
        assert!(turns.take(&greedy).now_or_never().unwrap().is_some());
    }

    #[tokio::test]
    async fn clients_without_a_turn_are_forgotten() {
        let turns = Turns::default();
        for number in 0..1000 {
            drop(turns.take(&identity(&number.to_string())).await);
        }
        let _kept = turns.take(&identity("kept")).await;
        drop(turns.take(&identity("last")).await);
        assert_eq!(turns.0.lock().unwrap().len(), 2);
    }
}
