//! Rules of the proxy that know the messages of ZooKeeper.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use testbed::{
    Proxy,
    proxy::{Rule, Verdict},
};

/// The kinds of requests. The first message of a connection looks like a request of kind 0.
pub(super) const CONNECT: i32 = 0;
pub(super) const DELETE: i32 = 2;
pub(super) const SYNC: i32 = 9;
pub(super) const MULTI: i32 = 14;
pub(super) const CREATE: i32 = 15;
pub(super) const MULTI_READ: i32 = 22;

/// Strikes the first request of a kind, behind some that pass.
#[derive(Debug)]
struct Strike {
    kind: i32,
    passing: usize,
    verdict: Verdict,
    has_struck: Arc<AtomicBool>,
}

/// Strikes the first request of a kind, behind some that pass. Returns whether it has.
pub(super) fn strike(
    proxy: &Proxy,
    kind: i32,
    passing: usize,
    verdict: Verdict,
) -> Arc<AtomicBool> {
    let has_struck = Arc::new(AtomicBool::new(false));
    proxy.add(Strike { kind, passing, verdict, has_struck: has_struck.clone() });
    has_struck
}

impl Rule for Strike {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        if self.has_struck.load(Ordering::SeqCst) || !kinds(request).contains(&self.kind) {
            return Verdict::Pass;
        }
        if self.passing > 0 {
            self.passing -= 1;
            return Verdict::Pass;
        }
        self.has_struck.store(true, Ordering::SeqCst);
        self.verdict
    }

    fn is_pending(&self) -> bool {
        !self.has_struck.load(Ordering::SeqCst)
    }
}

/// Delays all requests of a kind.
#[derive(Debug)]
struct Late {
    kind: i32,
    delay: Duration,
}

/// Delays all requests of a kind from now on, and with each what follows on its connection.
pub(super) fn delay(proxy: &Proxy, kind: i32, delay: Duration) {
    proxy.add(Late { kind, delay });
}

impl Rule for Late {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let is_late = kinds(request).contains(&self.kind);
        if is_late { Verdict::Delay(self.delay) } else { Verdict::Pass }
    }
}

/// Counts the requests of a kind.
#[derive(Debug)]
struct Count {
    kind: i32,
    seen: Arc<AtomicUsize>,
}

/// Counts the requests of a kind from now on.
pub(super) fn count(proxy: &Proxy, kind: i32) -> Arc<AtomicUsize> {
    let seen = Arc::new(AtomicUsize::new(0));
    proxy.add(Count { kind, seen: seen.clone() });
    seen
}

impl Rule for Count {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let seen = kinds(request).into_iter().filter(|&kind| kind == self.kind).count();
        self.seen.fetch_add(seen, Ordering::SeqCst);
        Verdict::Pass
    }
}

/// Delays all requests of a kind that are for the locks.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) kind: i32,
    pub(super) delay: Duration,
}

impl Rule for Slow {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        // The path follows the kind and its own length. The requests may be cut off at both ends.
        let path = b"/fenced/queues/";
        let is_slow = request
            .windows(8 + path.len())
            .any(|window| window.ends_with(path) && window.starts_with(&self.kind.to_be_bytes()));
        if is_slow { Verdict::Delay(self.delay) } else { Verdict::Pass }
    }
}

/// Loses all requests of a kind, with their connections, while the flag is set.
#[derive(Debug)]
pub(super) struct LosesAll {
    pub(super) kind: i32,
    pub(super) is_on: Arc<AtomicBool>,
}

impl Rule for LosesAll {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let is_lost = self.is_on.load(Ordering::SeqCst) && kinds(request).contains(&self.kind);
        if is_lost { Verdict::Drop } else { Verdict::Pass }
    }
}

/// Returns the kinds of the requests that were sent at once: each is its length, its number and its
/// kind. The last one may be cut off. Its rest comes alone, and counts as some kind that nobody uses.
fn kinds(mut requests: &[u8]) -> Vec<i32> {
    let mut kinds = Vec::new();
    while let Some((length, rest)) = requests.split_first_chunk() {
        let Some(kind) = rest.get(4..8) else { break };
        kinds.push(i32::from_be_bytes(kind.try_into().unwrap()));
        let length = usize::try_from(i32::from_be_bytes(*length));
        let Some(following) = length.ok().and_then(|length| rest.get(length..)) else { break };
        requests = following;
    }
    kinds
}
