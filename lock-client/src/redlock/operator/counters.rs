//! All counters of a node, read and copied in batches.

use std::collections::BTreeSet;

use fence::Token;
use serde::Serialize;

use super::peer::{Peer, PeerError};
use crate::{
    redis::{
        keys::Keys,
        script::{Script, script},
    },
    redlock::record::read_process,
};

/// About how many counters make a batch.
const BATCH: usize = 500;

static RAISE_COUNTERS: Script =
    script!("../run_id.lua", "../raise_counter.lua", "raise_counters.lua");

/// The counters that an admission or a start has copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopiedCounters {
    /// How many were missing or too low.
    #[serde(rename = "counters_raised")]
    pub raised: u64,
    /// The keys that have the name of a counter on other nodes, and something else than a counter. No
    /// node grants a lock from them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<String>,
}

/// A scan of the counters of a node.
pub(super) struct Counters {
    /// Where the scan continues; `None` at the end.
    cursor: Option<u64>,
    /// The keys that can't be those of a name, because they are no UTF-8.
    skipped: BTreeSet<String>,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self { cursor: Some(0), skipped: BTreeSet::new() }
    }

    /// Returns the keys of the next batch; `None` at the end. A key that exists throughout the scan
    /// is returned at least once, and sometimes twice.
    pub(super) async fn next(&mut self, peer: &Peer) -> Result<Option<Vec<String>>, PeerError> {
        while let Some(cursor) = self.cursor {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(Keys::ALL_COUNTERS).arg("COUNT").arg(BATCH);
            let scanned = scan.query_async(&mut peer.connection.clone()).await;
            let (next, found): (u64, BTreeSet<Vec<u8>>) = scanned.map_err(|e| peer.error(&e))?;
            self.cursor = (next != 0).then_some(next);
            let mut keys = Vec::new();
            for key in found {
                match String::from_utf8(key) {
                    Ok(key) => keys.push(key),
                    Err(error) => {
                        self.skipped.insert(error.as_bytes().escape_ascii().to_string());
                    }
                }
            }
            if !keys.is_empty() {
                return Ok(Some(keys));
            }
        }
        Ok(None)
    }
}

/// Reads the counters at these keys; `None` where there is none, or no number.
pub(super) async fn read(peer: &Peer, keys: &[String]) -> Result<Vec<Option<u64>>, PeerError> {
    let values = redis::cmd("MGET").arg(keys).query_async(&mut peer.connection.clone()).await;
    let values: Vec<Option<Vec<u8>>> = values.map_err(|error| peer.error(&error))?;
    Ok(values.into_iter().map(|value| value.and_then(|value| counter(&value))).collect())
}

/// Parses a counter as the scripts do. No node grants a lock from anything else.
fn counter(value: &[u8]) -> Option<u64> {
    let digits =
        std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit))?;
    digits.parse().ok().filter(|counter| *counter <= Token::MAX.as_u64())
}

/// Raises all counters of one node to those of another, and to this number at least.
pub(super) async fn copy(
    from: &Peer,
    to: &Peer,
    at_least: u64,
    copied: &mut CopiedCounters,
) -> Result<(), PeerError> {
    let mut counters = Counters::new();
    while let Some(found) = counters.next(from).await? {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (key, value) in found.iter().zip(read(from, &found).await?) {
            match value {
                Some(value) => {
                    keys.push(key.clone());
                    values.push(value.max(at_least));
                }
                None => drop(copied.skipped.insert(key.clone())),
            }
        }
        let call = RAISE_COUNTERS.with(keys);
        let call = values.into_iter().fold(call, |call, value| call.arg(value)).arg(&to.process);
        let mut connection = to.connection.clone();
        let raised = call.in_full().query_async::<u64>(&mut connection).await;
        copied.raised += raised.map_err(|error| to.error(&error))?;
    }
    copied.skipped.append(&mut counters.skipped);
    // A forwarder may have moved the connection to another process meanwhile.
    match read_process(&mut from.connection.clone()).await {
        Ok(process) if process == from.process => Ok(()),
        Ok(_) => Err(PeerError::new(
            &from.address,
            "another process answers than the one whose counters are copied",
        )),
        Err(error) => Err(from.error(&error)),
    }
}
