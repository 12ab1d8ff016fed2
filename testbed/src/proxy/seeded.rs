//! Faults that a seed decides.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    resp,
    rule::{Rule, Verdict},
};

/// Faults, each with the part of all requests, from 0 to 1, that it strikes. A time in a fault is
/// the longest: the seed decides how much of it the message waits.
pub type Odds = Vec<(f64, Verdict)>;

/// Returns odds at which every fault strikes often.
pub fn rough_odds(longest: Duration) -> Odds {
    vec![
        (0.10, Verdict::Delay(longest)),
        (0.10, Verdict::DelayReply(longest)),
        (0.03, Verdict::Drop),
        (0.05, Verdict::DropReply),
        (0.05, Verdict::Late(longest)),
        (0.05, Verdict::Duplicate),
        (0.05, Verdict::Repeat(longest)),
    ]
}

/// A rule for the scripts that clients send to a Redis: a seed decides which fault strikes which.
/// Other commands, such as those that open a connection, pass.
///
/// The same seed decides the same for the same number of a script on the same node. Clones share
/// the record of what was decided. Needs [`Framing::Resp`](super::message::Framing::Resp).
#[derive(Clone, Debug)]
pub struct SeededFaults {
    seed: u64,
    node: u64,
    odds: Odds,
    /// What was decided on each script, in the order in which they came.
    verdicts: Arc<Mutex<Vec<Verdict>>>,
}

impl SeededFaults {
    /// Makes the rule for one of several nodes, which must not share their faults.
    pub fn new(seed: u64, node: u64, odds: Odds) -> Self {
        Self { seed, node, odds, verdicts: Arc::default() }
    }

    /// Returns the verdict on the script of this number, from 0.
    pub fn verdict(&self, script: u64) -> Verdict {
        let mut source = [0; 32];
        source[..8].copy_from_slice(&self.seed.to_le_bytes());
        source[8..16].copy_from_slice(&self.node.to_le_bytes());
        source[16..24].copy_from_slice(&script.to_le_bytes());
        let mut random = StdRng::from_seed(source);
        let mut lot = random.random_range(0.0..1.0);
        let part = random.random_range(0.0..=1.0);
        let struck = self.odds.iter().find(|(odds, _)| {
            lot -= odds;
            lot < 0.0
        });
        match struck.map_or(Verdict::Pass, |(_, fault)| *fault) {
            Verdict::Delay(longest) => Verdict::Delay(longest.mul_f64(part)),
            Verdict::DelayReply(longest) => Verdict::DelayReply(longest.mul_f64(part)),
            Verdict::Late(longest) => Verdict::Late(longest.mul_f64(part)),
            Verdict::Repeat(longest) => Verdict::Repeat(longest.mul_f64(part)),
            timeless => timeless,
        }
    }

    /// Returns the faults so far, in the order of the scripts that they struck or will strike.
    pub fn faults(&self) -> Vec<Verdict> {
        let verdicts = self.verdicts.lock().expect("nothing panics while it is locked");
        verdicts.iter().copied().filter(|verdict| *verdict != Verdict::Pass).collect()
    }
}

impl Rule for SeededFaults {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        if !matches!(resp::command(request).as_str(), "EVAL" | "EVALSHA") {
            return Verdict::Pass;
        }
        let mut verdicts = self.verdicts.lock().expect("nothing panics while it is locked");
        let verdict = self.verdict(verdicts.len() as u64);
        verdicts.push(verdict);
        verdict
    }
}
