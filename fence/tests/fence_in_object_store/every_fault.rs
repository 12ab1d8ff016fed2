//! Every sequence of faults and rivals, up to a limit: outcomes are true, and the fence holds.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use fence::{
    Fence,
    object_store::{Content, Outcome, Register, RegisterError, Registers},
};
use object_store::path::Path;

use super::{
    choices::Choices,
    faulty::{Faulty, Limits, Rival},
    offer,
    recorded::{Entry, GONE},
};

/// How a client saw its claim or write end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Applied(u64),
    Rejected,
    Unknown,
    /// An error that says that nothing has changed.
    Unchanged,
}

/// A client that claims and writes `r`.
#[async_trait]
pub(super) trait Client: Send {
    async fn claim(&mut self, offered: &Fence) -> Seen;
    async fn write(&mut self, offered: &Fence, value: String) -> Seen;
}

pub(super) fn seen(outcome: Result<Outcome<Content>, RegisterError>) -> Seen {
    match outcome {
        Ok(Outcome::Applied(content)) => Seen::Applied(content.version),
        Ok(Outcome::Rejected(_)) => Seen::Rejected,
        Ok(Outcome::Unknown(_)) => Seen::Unknown,
        Err(RegisterError::Store { .. } | RegisterError::Contended { .. }) => Seen::Unchanged,
        Err(error) => panic!("{error}"),
    }
}

#[async_trait]
impl Client for Register {
    async fn claim(&mut self, offered: &Fence) -> Seen {
        seen(Register::claim(self, offered).await)
    }

    async fn write(&mut self, offered: &Fence, value: String) -> Seen {
        seen(Register::write(self, offered, value.into()).await)
    }
}

pub(super) fn register(store: Arc<Faulty>) -> Box<dyn Client> {
    Box::new(Registers::new(store, Path::ROOT).register(&"r".parse().unwrap()))
}

/// Shorter than a register's memory.
const LONGEST_RUN: Duration = Duration::from_millis(500);
/// How many runs of a check may take longer. They are repeated.
const MOST_SLOW_RUNS: usize = 100;

/// What a run checks, and with which values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) limits: Limits,
    pub(super) rivals: &'static [Rival],
    /// How many bytes a value has at least.
    pub(super) value_bytes: usize,
    /// Whether rivals alone must leave no outcome unknown.
    pub(super) is_known_without_faults: bool,
}

pub(super) const WRITERS: &[Rival] =
    &[Rival::Higher, Rival::HigherTwice, Rival::Twin, Rival::Lower];

/// Runs every sequence. Returns how many there were, or the first violation.
pub(super) async fn check(
    plan: Plan,
    client: impl Fn(Arc<Faulty>) -> Box<dyn Client>,
) -> Result<usize, String> {
    let mut choices = Choices::default();
    let (mut runs, mut slow) = (0, 0);
    loop {
        let faulty = Faulty::new(choices.clone(), plan.limits, plan.rivals);
        let begun = Instant::now();
        let result = run(plan, faulty.clone(), client(faulty.clone())).await;
        // A register reads again what it saw too long ago, so that a run without a processor is another one.
        if begun.elapsed() > LONGEST_RUN {
            slow += 1;
            assert!(slow < MOST_SLOW_RUNS, "the machine is too slow");
            continue;
        }
        choices = faulty.choices();
        assert!(!choices.have_diverged(), "a run depends on nothing but its choices");
        result.map_err(|violation| {
            format!("{violation}: {choices:?}, {:#?}", faulty.recorded.states())
        })?;
        runs += 1;
        if !choices.advance() {
            return Ok(runs);
        }
    }
}

/// What a client did, and how it saw that end.
struct Act {
    /// The value that it wrote; `None` if it claimed.
    value: Option<&'static str>,
    outcome: Seen,
    /// The ids of the writes that it sent.
    sent: Vec<String>,
}

impl Act {
    /// Whether the outcome is the truth about these states.
    fn check(&self, states: &[Entry], is_known: bool) -> Result<(), String> {
        let Self { value, outcome, sent } = self;
        let what = value.unwrap_or("the claim");
        let landed: Vec<_> = states.iter().filter(|state| sent.contains(&state.write_id)).collect();
        let is_right = |version, state: &Entry| {
            let has_value = value.is_none() || state.value.as_deref() == *value;
            state.version == version && state.fence == offer(34, "a") && has_value
        };
        match outcome {
            _ if landed.len() > 1 => Err(format!("{what} was applied twice")),
            Seen::Applied(version) if !landed.iter().any(|state| is_right(*version, state)) => {
                Err(format!("{what} was acknowledged, and not applied"))
            }
            Seen::Rejected | Seen::Unchanged if !landed.is_empty() => {
                Err(format!("{what} was {outcome:?}, and applied"))
            }
            Seen::Unknown if is_known => Err(format!("{what} is unknown without a fault")),
            _ => Ok(()),
        }
    }
}

/// A client claims, and writes twice, until it is rejected or does not know.
async fn run(plan: Plan, store: Arc<Faulty>, mut client: Box<dyn Client>) -> Result<(), String> {
    let offered = offer(34, "a");
    let mut acts: Vec<Act> = Vec::new();
    for value in [None, Some("first"), Some("second")] {
        if acts.last().is_some_and(|act| !matches!(act.outcome, Seen::Applied(_))) {
            break;
        }
        let outcome = match value {
            None => client.claim(&offered).await,
            Some(value) => {
                let padded = format!("{value} {}", "x".repeat(plan.value_bytes));
                client.write(&offered, padded).await
            }
        };
        acts.push(Act { value, outcome, sent: store.take_sent() });
    }
    store.deliver_late_requests().await;

    let states = store.recorded.states();
    is_in_fence_order(&states)?;
    let is_known = plan.is_known_without_faults && store.used().faults == 0;
    acts.iter().try_for_each(|act| act.check(&states, is_known))?;
    let registers = Registers::new(Arc::new(store.recorded.clone()), Path::ROOT);
    let read = registers.register(&"r".parse().unwrap()).read().await;
    read.map_err(|error| error.to_string())?;
    Ok(())
}

fn is_in_fence_order(states: &[Entry]) -> Result<(), String> {
    for (version, state) in (1..).zip(states) {
        if state.version != version {
            return Err(format!("the state of version {version} was replaced unseen"));
        }
        if state.value.as_deref() == Some(GONE) {
            return Err(format!("the value of version {version} is gone"));
        }
    }
    for pair in states.windows(2) {
        let [before, after] = [&pair[0].fence, &pair[1].fence];
        if after.token < before.token || (after.token == before.token && after != before) {
            return Err(format!("{after:?} was accepted after {before:?}"));
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_true_and_the_fence_holds_through_every_fault() {
    let limits = Limits { faults: 2, rivals: 1 };
    let plan = Plan { limits, rivals: WRITERS, value_bytes: 0, is_known_without_faults: true };
    let runs = check(plan, register).await.unwrap();
    assert!(runs > 1000, "{runs}");
    let limits = Limits { faults: 1, rivals: 2 };
    let runs = check(Plan { limits, ..plan }, register).await.unwrap();
    assert!(runs > 1000, "{runs}");
}

#[tokio::test(start_paused = true)]
async fn outcome_that_the_register_has_forgotten_is_never_a_rejection() {
    let limits = Limits { faults: 1, rivals: 1 };
    let rivals = &[Rival::HigherOften];
    let plan = Plan { limits, rivals, value_bytes: 0, is_known_without_faults: false };
    let runs = check(plan, register).await.unwrap();
    assert!(runs > 50, "{runs}");
}

/// Also while a collector deletes what nobody refers to.
#[tokio::test(start_paused = true)]
async fn large_values_are_never_torn_from_their_register() {
    let rivals = &[Rival::Collector, Rival::Higher, Rival::Twin];
    let limits = Limits { faults: 1, rivals: 2 };
    let plan = Plan { limits, rivals, value_bytes: 20_000, is_known_without_faults: true };
    let runs = check(plan, register).await.unwrap();
    assert!(runs > 1000, "{runs}");

    // The negative control.
    let plan = Plan { rivals: &[Rival::CollectorByAge], ..plan };
    let violation = check(plan, register).await.unwrap_err();
    assert!(violation.contains("is gone"), "{violation}");
}
