//! All small states and arguments.

use redlock_model::{
    Holder, Token,
    node::{Lock, Node, Owned},
};

/// The highest counter, token, grant and floor of a state, and of an argument.
const HIGHEST: Token = 3;
/// The holder that asks.
const ASKING: Holder = Holder(0);
const OTHER: Holder = Holder(1);

/// A script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Grant,
    Join,
    Seal,
    Raise,
    Renew,
    Release,
}

/// A state of a node, and a request to it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) node: Node,
    pub(super) is_admitted: bool,
    pub(super) step: Step,
    /// The numbers of the request: see [`Case::expected`].
    pub(super) numbers: Vec<Token>,
}

/// What follows from a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) reply: Reply,
    pub(super) counter: Token,
    pub(super) lock: Option<Lock>,
    /// Whether the lock has the full ttl of the request, and not that of before.
    pub(super) has_full_ttl: bool,
}

/// A reply, without the details of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A number, and the grant and the floor that the lock has now.
    Owned {
        number: Token,
        grant: Token,
        floor: Token,
    },
    /// The request is not carried out; the holder has the lock with this grant and floor.
    Own {
        grant: Token,
        floor: Token,
    },
    /// The request is not carried out.
    Rejected,
    /// A release: whether the holder had the lock.
    Released(bool),
    NoVote,
}

impl Case {
    /// All cases of a script.
    pub(super) fn all_of(step: Step) -> Vec<Self> {
        let tokens = || 1..=HIGHEST;
        let pairs = || tokens().flat_map(move |one| tokens().map(move |other| vec![one, other]));
        let requests: Vec<Vec<Token>> = match step {
            Step::Grant => vec![vec![]],
            Step::Renew => tokens().map(|grant| vec![grant]).collect(),
            Step::Release => (0..=HIGHEST).map(|token| vec![token]).collect(),
            Step::Join | Step::Raise => pairs().collect(),
            Step::Seal => pairs()
                .flat_map(|pair| tokens().map(move |token| [&pair[..], &[token]].concat()))
                .collect(),
        };
        let mut cases = Vec::new();
        for node in all_nodes() {
            for numbers in &requests {
                for is_admitted in [true, false] {
                    cases.push(Self { node, is_admitted, step, numbers: numbers.clone() });
                }
            }
        }
        cases
    }

    /// The model's outcome.
    pub(super) fn expected(&self) -> Outcome {
        let mut node = self.node;
        let owned = match (self.step, &self.numbers[..]) {
            (Step::Release, &[token]) => {
                // A process without a vote frees the lock, too. But its answer proves nothing.
                let released = Reply::Released(node.release(ASKING, token));
                let reply = if self.is_admitted { released } else { Reply::NoVote };
                return Outcome::new(reply, node, false);
            }
            _ if !self.is_admitted => return Outcome::new(Reply::NoVote, node, false),
            (Step::Grant, []) => node.grant(ASKING),
            (Step::Join, &[grant, token]) => node.join(ASKING, grant, token, None),
            (Step::Seal, &[here, common, token]) => node.seal(ASKING, [here, common], token, None),
            (Step::Raise, &[grant, above]) => node.raise(ASKING, grant, above),
            (Step::Renew, &[grant]) => node.renew(ASKING, grant),
            (step, numbers) => unreachable!("{step:?} has other numbers: {numbers:?}"),
        };
        let own_lock = node.lock.filter(|lock| lock.holder == ASKING);
        let reply = match (owned, own_lock) {
            (Some(Owned { number, floor }), Some(lock)) => {
                assert_eq!(floor, lock.floor);
                Reply::Owned { number, grant: lock.grant, floor }
            }
            (None, Some(lock)) => Reply::Own { grant: lock.grant, floor: lock.floor },
            (None, None) => Reply::Rejected,
            (Some(_), None) => unreachable!("an owner has the lock"),
        };
        let takes = matches!(self.step, Step::Grant | Step::Join) && self.node.lock.is_none();
        let renews = self.step == Step::Renew && owned.is_some();
        Outcome::new(reply, node, takes || renews)
    }
}

impl Outcome {
    fn new(reply: Reply, node: Node, has_full_ttl: bool) -> Self {
        Self { reply, counter: node.counter, lock: node.lock, has_full_ttl }
    }
}

fn all_nodes() -> Vec<Node> {
    let mut locks = vec![None];
    for token in 1..=HIGHEST {
        for grant in 1..=HIGHEST {
            for floor in 0..=HIGHEST {
                let lock = |holder| Some(Lock { token, grant, floor, holder });
                locks.extend([lock(ASKING), lock(OTHER)]);
            }
        }
    }
    let counters = 0..=HIGHEST;
    counters.flat_map(|counter| locks.iter().map(move |lock| Node::new(counter, *lock))).collect()
}
