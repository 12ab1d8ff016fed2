//! All counters of a node, read and copied in batches.

use std::collections::HashSet;

use crate::{
    redis::{
        keys::Keys,
        script::{Script, script},
    },
    redlock::peer::{Peer, PeerError},
};

/// About how many counters make a batch.
const BATCH: usize = 500;

static RAISE_COUNTERS: Script = script!("../raise_counter.lua", "raise_counters.lua");

/// A scan of the counters of a node.
pub(super) struct Counters {
    /// Where the scan continues; `None` at the end.
    cursor: Option<u64>,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self { cursor: Some(0) }
    }

    /// Returns the keys of the next batch; `None` at the end. A key that exists throughout the scan
    /// is returned at least once, and sometimes twice.
    pub(super) async fn next(&mut self, peer: &mut Peer) -> Result<Option<Vec<String>>, PeerError> {
        while let Some(cursor) = self.cursor {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(Keys::ALL_COUNTERS).arg("COUNT").arg(BATCH);
            let scanned = scan.query_async(&mut peer.connection).await;
            let (next, keys): (u64, HashSet<String>) = scanned.map_err(|e| peer.error(&e))?;
            self.cursor = (next != 0).then_some(next);
            if !keys.is_empty() {
                return Ok(Some(keys.into_iter().collect()));
            }
        }
        Ok(None)
    }
}

/// Reads the counters at these keys; `None` where there is none, or no number.
pub(super) async fn read(peer: &mut Peer, keys: &[String]) -> Result<Vec<Option<u64>>, PeerError> {
    let values = redis::cmd("MGET").arg(keys).query_async(&mut peer.connection).await;
    let values: Vec<Option<Vec<u8>>> = values.map_err(|error| peer.error(&error))?;
    let number = |value: Vec<u8>| std::str::from_utf8(&value).ok()?.parse().ok();
    Ok(values.into_iter().map(|value| value.and_then(number)).collect())
}

/// Raises all counters of one node to those of another. Returns how many were raised.
pub(super) async fn copy(from: &mut Peer, to: &mut Peer) -> Result<u64, PeerError> {
    let mut raised = 0;
    let mut counters = Counters::new();
    while let Some(keys) = counters.next(from).await? {
        let values = read(from, &keys).await?;
        let known = keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
        let (keys, values): (Vec<_>, Vec<_>) = known.unzip();
        let call = RAISE_COUNTERS.with(keys);
        let call = values.into_iter().fold(call, |call, value| call.arg(value));
        let answer = call.in_full().query_async::<u64>(&mut to.connection).await;
        raised += answer.map_err(|error| to.error(&error))?;
    }
    Ok(raised)
}
