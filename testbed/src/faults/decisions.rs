//! What is to go wrong, as a seed decides.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Of how many requests, from 0 to 1, each fault is the lot. Of the rest all goes well.
#[derive(Clone, Copy, Debug)]
pub struct Odds {
    /// The request is late.
    pub slow_request: f64,
    /// The reply is late.
    pub slow_reply: f64,
    /// The request is lost with its connection, and is not executed.
    pub lost_request: f64,
    /// The request is executed, and its reply is lost with the connection.
    pub lost_reply: f64,
    /// The connection ends, and the request is executed after that.
    pub late: f64,
    /// The request is executed twice, one right after the other.
    pub twice: f64,
    /// The request is executed, and once more later.
    pub again_later: f64,
    /// The longest that something is held back. How long, the seed decides, from nothing up to this.
    pub longest: Duration,
}

impl Odds {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        slow_request: 0.0,
        slow_reply: 0.0,
        lost_request: 0.0,
        lost_reply: 0.0,
        late: 0.0,
        twice: 0.0,
        again_later: 0.0,
        longest: Duration::ZERO,
    };

    /// A good part of everything goes wrong, up to so late.
    pub const fn rough(longest: Duration) -> Self {
        Self {
            slow_request: 0.10,
            slow_reply: 0.10,
            lost_request: 0.03,
            lost_reply: 0.05,
            late: 0.05,
            twice: 0.05,
            again_later: 0.05,
            longest,
        }
    }
}

/// What is to happen to a request or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    SlowRequest(Duration),
    SlowReply(Duration),
    LostRequest,
    LostReply,
    Late(Duration),
    Twice,
    AgainLater(Duration),
}

/// Decides for a node. The same seed decides the same for the same number of the same node.
#[derive(Clone, Copy, Debug)]
pub struct Decisions {
    pub seed: u64,
    pub node: u64,
    pub odds: Odds,
}

impl Decisions {
    /// What is to go wrong with the request of this number, if anything.
    pub fn fault_of(&self, request: u64) -> Option<Fault> {
        let mut source = [0; 32];
        source[..8].copy_from_slice(&self.seed.to_le_bytes());
        source[8..16].copy_from_slice(&self.node.to_le_bytes());
        source[16..24].copy_from_slice(&request.to_le_bytes());
        let mut random = StdRng::from_seed(source);
        let (mut lot, odds) = (random.random_range(0.0..1.0), &self.odds);
        let wait = odds.longest.mul_f64(random.random_range(0.0..=1.0));
        let faults = [
            (odds.slow_request, Fault::SlowRequest(wait)),
            (odds.slow_reply, Fault::SlowReply(wait)),
            (odds.lost_request, Fault::LostRequest),
            (odds.lost_reply, Fault::LostReply),
            (odds.late, Fault::Late(wait)),
            (odds.twice, Fault::Twice),
            (odds.again_later, Fault::AgainLater(wait)),
        ];
        let mut fallen = faults.into_iter().filter(|(part, _)| {
            lot -= part;
            lot < 0.0
        });
        fallen.next().map(|(_, fault)| fault)
    }
}
