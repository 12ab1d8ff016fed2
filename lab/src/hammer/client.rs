//! A client that acts as if it acquired lock after lock, while other clients do the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fence::{Fence, Holder, ResourceName, Token};
use tokio::time::sleep;

use super::{
    database::{Attempt, Connection, Offer, Seen, Written},
    history::{History, Read, Write},
};

/// The number of resources that the clients contend for.
pub(super) const RESOURCES: usize = 2;
/// The longest pause in a transaction, in milliseconds.
pub(super) const PAUSE_IN_TRANSACTION_MS: u64 = 3;
/// The longest pause between a transaction that reads and one that writes, in milliseconds.
const PAUSE_MS: u64 = 12;

/// What one client did and saw.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) histories: [History; RESOURCES],
    pub(super) rejected: usize,
    pub(super) tried_again: usize,
}

pub(super) struct Client {
    pub(super) connection: Box<dyn Connection>,
    pub(super) resources: Vec<ResourceName>,
    pub(super) next_token: Arc<AtomicU64>,
    pub(super) tally: Tally,
}

impl Client {
    /// Increments resources until the time is over or it must stop, each time with a new token.
    pub(super) async fn contend(
        mut self,
        until: Instant,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Tally> {
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            let number = rand::random_range(0..RESOURCES);
            let token = Token::new(self.next_token.fetch_add(1, Ordering::Relaxed))?;
            let fence = Fence { token, holder: Holder::random() };
            let offer = Offer { resource: self.resources[number].clone(), fence };
            if rand::random() {
                self.increment_in_one_transaction(number, &offer).await?;
            } else {
                self.increment_in_several_transactions(number, &offer).await?;
            }
        }
        Ok(self.tally)
    }

    async fn increment_in_one_transaction(
        &mut self,
        number: usize,
        offer: &Offer,
    ) -> anyhow::Result<()> {
        let attempt = self.connection.increment(offer, pause(PAUSE_IN_TRANSACTION_MS)).await?;
        if let Some((seen, written)) = self.count(number, attempt) {
            self.record_read(number, offer, seen);
            self.record_write(number, offer, written);
        }
        Ok(())
    }

    /// Reads, pauses so that another client gets the lock, and writes. Sometimes it writes again
    /// with the same token, without another read.
    async fn increment_in_several_transactions(
        &mut self,
        number: usize,
        offer: &Offer,
    ) -> anyhow::Result<()> {
        let read = self.connection.read(offer).await?;
        let Some(seen) = self.count(number, read) else {
            return Ok(());
        };
        self.record_read(number, offer, seen);
        for increments in seen.increments + 1..=seen.increments + rand::random_range(1..=2) {
            sleep(pause(PAUSE_MS)).await;
            let attempt = self.connection.write(offer, increments).await?;
            let Some(written) = self.count(number, attempt) else {
                return Ok(());
            };
            self.record_write(number, offer, written);
        }
        Ok(())
    }

    fn count<T>(&mut self, number: usize, attempt: Attempt<T>) -> Option<T> {
        match attempt {
            Attempt::Committed(result) => return Some(result),
            Attempt::Rejected => self.tally.rejected += 1,
            Attempt::TryAgain => self.tally.tried_again += 1,
            Attempt::Unknown => self.tally.histories[number].unknown += 1,
            Attempt::Lost => self.tally.histories[number].lost += 1,
        }
        None
    }

    fn record_read(&mut self, number: usize, offer: &Offer, Seen { state, .. }: Seen) {
        let token = offer.fence.token.as_u64();
        self.tally.histories[number].reads.push(Read { token, state });
    }

    fn record_write(&mut self, number: usize, offer: &Offer, written: Written) {
        let token = offer.fence.token.as_u64();
        let Written { state, replaced } = written;
        self.tally.histories[number].writes.push(Write { token, state, replaced });
    }
}

pub(super) fn pause(at_most_ms: u64) -> Duration {
    Duration::from_millis(rand::random_range(0..=at_most_ms))
}
