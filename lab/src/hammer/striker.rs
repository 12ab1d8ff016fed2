//! A client that acquires lock after lock, whoever else has one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fence::{Fence, Holder, ResourceName, Token};
use tokio::time::sleep;

use super::{
    Attempt, Client, Offer, RESOURCES, Seen, Written,
    history::{History, Read, Write},
};

/// The longest that a client keeps a transaction open, in milliseconds.
pub(super) const PAUSE_IN_TRANSACTION_MS: u64 = 3;
/// The longest that a client pauses between a transaction that reads and one that writes.
const PAUSE_MS: u64 = 12;

/// What one client saw.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) histories: [History; RESOURCES],
    pub(super) refused: usize,
    pub(super) tried_again: usize,
}

/// A client that acquires lock after lock, whoever else has one.
pub(super) struct Striker {
    pub(super) client: Box<dyn Client>,
    pub(super) resources: Vec<ResourceName>,
    /// The next token.
    pub(super) tokens: Arc<AtomicU64>,
    pub(super) tally: Tally,
}

impl Striker {
    /// Strikes until the time is over.
    pub(super) async fn strike(mut self, until: Instant) -> anyhow::Result<Tally> {
        while Instant::now() < until {
            let number = rand::random_range(0..RESOURCES);
            let token = Token::new(self.tokens.fetch_add(1, Ordering::Relaxed))?;
            let fence = Fence { token, holder: Holder::random() };
            let offer = Offer { resource: self.resources[number].clone(), fence };
            if rand::random() {
                self.in_one_transaction(number, &offer).await?;
            } else {
                self.in_a_transaction_each(number, &offer).await?;
            }
        }
        Ok(self.tally)
    }

    async fn in_one_transaction(&mut self, number: usize, offer: &Offer) -> anyhow::Result<()> {
        let attempt = self.client.increment(offer, pause(PAUSE_IN_TRANSACTION_MS)).await?;
        if let Some((seen, written)) = self.count(attempt) {
            self.note_read(number, offer, seen);
            self.note_write(number, offer, written);
        }
        Ok(())
    }

    /// Reads and writes with a pause in between, in which others get the lock; and may write again
    /// under the same token, from what it knows.
    async fn in_a_transaction_each(&mut self, number: usize, offer: &Offer) -> anyhow::Result<()> {
        let read = self.client.read(offer).await?;
        let Some(seen) = self.count(read) else {
            return Ok(());
        };
        self.note_read(number, offer, seen);
        for increments in seen.increments + 1..=seen.increments + rand::random_range(1..=2) {
            sleep(pause(PAUSE_MS)).await;
            let attempt = self.client.write(offer, increments).await?;
            let Some(written) = self.count(attempt) else {
                return Ok(());
            };
            self.note_write(number, offer, written);
        }
        Ok(())
    }

    fn count<T>(&mut self, attempt: Attempt<T>) -> Option<T> {
        match attempt {
            Attempt::Done(done) => return Some(done),
            Attempt::Refused => self.tally.refused += 1,
            Attempt::Again => self.tally.tried_again += 1,
        }
        None
    }

    fn note_read(&mut self, number: usize, offer: &Offer, Seen { state, .. }: Seen) {
        let token = offer.fence.token.as_u64();
        self.tally.histories[number].reads.push(Read { token, state });
    }

    fn note_write(&mut self, number: usize, offer: &Offer, written: Written) {
        let token = offer.fence.token.as_u64();
        let Written { state, replaced } = written;
        self.tally.histories[number].writes.push(Write { token, state, replaced });
    }
}

pub(super) fn pause(at_most_ms: u64) -> Duration {
    Duration::from_millis(rand::random_range(0..=at_most_ms))
}
