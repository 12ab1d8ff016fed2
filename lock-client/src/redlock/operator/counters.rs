//! The counters of all names that a node has, in batches.

use std::collections::HashSet;

use super::peer::{Peer, Trouble};
use crate::redis::script::{Script, script};

/// About how many names are looked at at once.
const BATCH: usize = 500;
/// Of the counters, whatever their name: braces stand for themselves.
const PATTERN: &str = "fenced:{*}:token";

static RAISE: Script = script!("raise_counters.lua");

/// A way through all counters of a node.
pub(super) struct Counters {
    /// Where to go on; `None` at the end.
    cursor: Option<u64>,
}

impl Counters {
    pub(super) fn all() -> Self {
        Self { cursor: Some(0) }
    }

    /// The keys of some counters; `None` if there are no more. A key that is there from the beginning to
    /// the end is among them, sometimes twice.
    pub(super) async fn next(&mut self, peer: &mut Peer) -> Result<Option<Vec<String>>, Trouble> {
        while let Some(cursor) = self.cursor {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(PATTERN).arg("COUNT").arg(BATCH);
            let scanned = scan.query_async(&mut peer.connection).await;
            let (next, keys): (u64, HashSet<String>) = scanned.map_err(|e| peer.trouble(e))?;
            self.cursor = (next != 0).then_some(next);
            if !keys.is_empty() {
                return Ok(Some(keys.into_iter().collect()));
            }
        }
        Ok(None)
    }
}

/// What the counters of these keys are; `None` for one that isn't there, or is no number.
pub(super) async fn read(peer: &mut Peer, keys: &[String]) -> Result<Vec<Option<u64>>, Trouble> {
    let values = redis::cmd("MGET").arg(keys).query_async(&mut peer.connection).await;
    let values: Vec<Option<Vec<u8>>> = values.map_err(|error| peer.trouble(error))?;
    let number = |value: Vec<u8>| std::str::from_utf8(&value).ok()?.parse().ok();
    Ok(values.into_iter().map(|value| value.and_then(number)).collect())
}

/// Raises all counters of a node that are below those of another. Answers how many were.
pub(super) async fn copy(from: &mut Peer, to: &mut Peer) -> Result<u64, Trouble> {
    let mut raised = 0;
    let mut counters = Counters::all();
    while let Some(keys) = counters.next(from).await? {
        let values = read(from, &keys).await?;
        let known = keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
        let (keys, values): (Vec<_>, Vec<_>) = known.unzip();
        let raise = values.into_iter().fold(RAISE.with(keys), |raise, value| raise.arg(value));
        let answer = raise.in_full().query_async::<u64>(&mut to.connection).await;
        raised += answer.map_err(|error| to.trouble(error))?;
    }
    Ok(raised)
}
