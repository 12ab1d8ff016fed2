//! The memory budget: `--max-bytes-in-flight`, for what clients send slowly, and don't read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::config::Config;

/// The largest head that counts as small, in bytes in memory.
const SMALL_HEAD_BYTES: usize = 4 << 10;
/// The largest body or answer that counts as small, in bytes.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// How long a large body waits for memory.
const WAIT: Duration = Duration::from_secs(5);

/// The bytes that may be in flight: of heads and bodies, from before they are buffered until their operations
/// are decided; of answers, until they are sent.
///
/// Small ones have shares of their own, so that large ones don't keep them out: a client may send half
/// of a body, or read nothing of an answer.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    pub(crate) small_heads: Share,
    large_heads: Share,
    pub(crate) small_bodies: Share,
    pub(crate) large_bodies: Share,
    small_answers: Share,
    large_answers: Share,
    crowded: AtomicBool,
}

impl MemoryBudget {
    pub(crate) fn new(config: &Config) -> Self {
        let bytes = config.max_bytes_in_flight as usize;
        Self {
            small_heads: Share::new((bytes / 32).max(SMALL_BYTES)),
            large_heads: Share::new((bytes / 32).max(SMALL_BYTES)),
            small_bodies: Share::new((bytes / 8).max(SMALL_BYTES)),
            large_bodies: Share::new((bytes / 2).max(config.max_value_bytes as usize)),
            small_answers: Share::new((bytes / 16).max(SMALL_BYTES)),
            large_answers: Share::new((bytes / 4).max(SMALL_BYTES)),
            crowded: AtomicBool::new(false),
        }
    }

    /// The share for the head of a request that takes so many bytes.
    pub(crate) fn heads(&self, bytes: usize) -> &Share {
        if bytes <= SMALL_HEAD_BYTES { &self.small_heads } else { &self.large_heads }
    }

    /// The share for an answer of so many bytes.
    pub(crate) fn answers(&self, bytes: usize) -> &Share {
        if bytes <= SMALL_BYTES { &self.small_answers } else { &self.large_answers }
    }

    /// All shares, with their names in the metrics.
    pub(crate) fn shares(&self) -> [(&'static str, &Share); 6] {
        [
            ("small-heads", &self.small_heads),
            ("large-heads", &self.large_heads),
            ("small-bodies", &self.small_bodies),
            ("large-bodies", &self.large_bodies),
            ("small-answers", &self.small_answers),
            ("large-answers", &self.large_answers),
        ]
    }

    /// Whether answers that are not read are in the way of others.
    pub(crate) fn is_short_of_answers(&self) -> bool {
        self.is_short(&self.small_answers) || self.is_short(&self.large_answers)
    }

    /// Whether clients that keep the server waiting are in the way of others: less than a quarter
    /// of the share is free, or a connection waits for its place among them.
    pub(crate) fn is_short(&self, share: &Share) -> bool {
        share.free.available_permits() < share.bytes / 4 || self.is_crowded()
    }

    /// Whether a connection waits because all others have requests in flight.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Notes whether a connection waits because all others have requests in flight.
    pub(crate) fn set_crowded(&self, crowded: bool) {
        self.crowded.store(crowded, Ordering::Relaxed);
    }
}

/// A number of bytes, of which parts are taken.
#[derive(Debug)]
pub(crate) struct Share {
    free: Arc<Semaphore>,
    bytes: usize,
}

impl Share {
    fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes)), bytes }
    }

    /// Takes this many bytes, if they are free. What is larger than the share takes all of it.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_many_owned(self.permits(bytes)).ok()
    }

    /// Takes this many bytes, and waits until they are free, in order of arrival. `None` if that
    /// takes too long.
    pub(crate) async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let taken = self.free.clone().acquire_many_owned(self.permits(bytes));
        timeout(WAIT, taken).await.ok()?.ok()
    }

    /// How many bytes are taken.
    pub(crate) fn taken(&self) -> usize {
        self.bytes - self.free.available_permits()
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.bytes)).unwrap_or(u32::MAX)
    }
}

/// Makes the bytes keep their memory until the last copy of them is dropped.
pub(crate) fn with_memory<T>(bytes: T, memory: OwnedSemaphorePermit) -> Bytes
where
    T: AsRef<[u8]> + Send + 'static,
{
    Bytes::from_owner(WithMemory { bytes, _memory: memory })
}

struct WithMemory<T> {
    bytes: T,
    _memory: OwnedSemaphorePermit,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for WithMemory<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn memory_is_free_again_once_the_last_copy_is_dropped() {
        let budget = MemoryBudget::new(&Config::default());
        let share = &budget.large_bodies;
        let value = with_memory("value", share.try_take(share.bytes).unwrap());
        let copy = value.slice(1..2);
        drop(value);
        assert!(budget.is_short(share));
        assert!(share.try_take(1).is_none());
        let mut waiting = pin!(share.take(1));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(copy, "a");
        drop(copy);
        assert!(!budget.is_short(share));
        assert!(waiting.await.is_some());
    }

    #[test]
    fn largest_value_always_fits() {
        let config = Config { max_bytes_in_flight: 0, ..Config::default() };
        let budget = MemoryBudget::new(&config);
        assert!(budget.large_bodies.try_take(config.max_value_bytes as usize).is_some());
        // A value that is larger than the share was written when the limits were higher.
        assert!(budget.large_answers.try_take(1 << 30).is_some());
    }

    #[test]
    fn large_bodies_leave_memory_to_small_ones() {
        let budget = MemoryBudget::new(&Config::default());
        let _all = budget.large_bodies.try_take(usize::MAX).unwrap();
        assert!(budget.large_bodies.try_take(1).is_none());
        assert!(budget.small_bodies.try_take(SMALL_BYTES).is_some());
    }
}
