//! What etcd shows of a lock at one moment.

use std::iter;

use fence::Token;
use serde_json::Value;

use super::{
    keys::Keys,
    messages::{Header, KeyValue, RangeReply, TxnReply, read},
};
use crate::backend::{BackendError, token};

#[derive(Debug)]
pub(super) struct View {
    pub(super) header: Header,
    /// The keys of the owner and of the waiters, the oldest first, or only the first of them.
    pub(super) queue: Vec<KeyValue>,
    pub(super) count: u64,
    offset: i64,
    /// The revision at which the offset was changed; 0 if it never was.
    pub(super) offset_revision: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Owner,
    All,
}

impl View {
    /// The two reads of a transaction that [`parse`](Self::parse) expects.
    pub(super) fn reads(keys: &Keys, part: Part) -> [Value; 2] {
        [Self::read_of_queue(keys, part), read(&keys.offset(), None, 0)]
    }

    /// The read of the queue alone. [`parse`](Self::parse) then takes the offset for 0.
    pub(super) fn read_of_queue(keys: &Keys, part: Part) -> Value {
        let limit = match part {
            Part::Owner => 1,
            Part::All => 0,
        };
        read(&keys.queue(), Some(&keys.queue_end()), limit)
    }

    pub(super) fn parse(reply: TxnReply) -> Result<Self, BackendError> {
        Self::parse_all(reply).next().expect("it repeats")
    }

    /// Parses the reply of a transaction that read several locks, in their order.
    pub(super) fn parse_all(reply: TxnReply) -> impl Iterator<Item = Result<Self, BackendError>> {
        let mut ranges = reply.responses.into_iter().filter_map(|reply| reply.response_range);
        iter::repeat_with(move || {
            let mut next = || -> RangeReply { ranges.next().unwrap_or_default() };
            let (queue, offset) = (next(), next());
            Self::new(reply.header, queue, offset)
        })
    }

    fn new(
        header: Header,
        queue: RangeReply,
        mut offset: RangeReply,
    ) -> Result<Self, BackendError> {
        let offset = offset.kvs.pop();
        let number = match &offset {
            Some(offset) => offset.value.0.parse().map_err(|_| foreign(offset))?,
            None => 0,
        };
        Ok(Self {
            header,
            queue: queue.kvs,
            count: queue.count,
            offset: number,
            offset_revision: offset.map_or(0, |offset| offset.mod_revision),
        })
    }

    /// The key of the owner. It is the oldest of the queue.
    pub(super) fn owner(&self) -> Option<&KeyValue> {
        self.queue.first()
    }

    /// The owner, if it has this key, created at this revision.
    ///
    /// A key that exists, but is not the oldest, is no owner's. A cluster that was restored may
    /// have an older key again.
    pub(super) fn owner_if(&self, place: &str, created: i64) -> Option<&KeyValue> {
        self.owner().filter(|owner| owner.key.0 == place && owner.create_revision == created)
    }

    /// Returns how many keys are older than this one; `None` if the key does not exist.
    pub(super) fn position(&self, place: &str) -> Option<usize> {
        self.queue.iter().position(|key| key.key.0 == place)
    }

    pub(super) fn token(&self, owner: &KeyValue) -> Result<Token, BackendError> {
        token(owner.create_revision.saturating_add(self.offset))
    }
}

/// Reports a key that has a value which this crate never writes.
pub(super) fn foreign(key: &KeyValue) -> BackendError {
    BackendError::Rejected(format!("etcd's key {} holds nothing of ours", key.key.0).into())
}
