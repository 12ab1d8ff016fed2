//! Batches against a store that returns scripted results.

use std::{collections::VecDeque, sync::Mutex};

use async_trait::async_trait;
use fence::{Fence, Token};
use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::{
    committer::job::TransactionJob,
    metrics::Metrics,
    operation::{Action, Decided, Operation, Outcome},
    row::{Described, StoredValue},
    sequence::Numbered,
    store::{
        Decide,
        error::{ReadError, Unreachable},
        list::{Listing, Page},
    },
    transaction::{DecidedTransaction, Transaction},
};

/// A store whose `apply` returns scripted results, and records the resources of each call.
#[derive(Default)]
struct Scripted {
    row: Mutex<Row>,
    results: Mutex<VecDeque<Result<bool, ApplyError>>>,
    applied: Mutex<Vec<Vec<String>>>,
    loaded: Mutex<usize>,
    wanted: Mutex<Vec<WantedValue>>,
}

#[async_trait]
impl Store for Scripted {
    fn database(&self) -> &str {
        "scripted"
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        *self.loaded.lock().unwrap() += wanted.len();
        self.wanted.lock().unwrap().extend(wanted.iter().map(|wanted| wanted.value));
        let row = self.row.lock().unwrap().clone();
        let load = |wanted: &Wanted<'_>| match wanted.resource.as_str() {
            "unreadable" => Err(UnreadableRow::new("unreadable", "of this test")),
            _ => Ok(row.clone()),
        };
        Ok(wanted.iter().map(load).collect())
    }

    async fn read_durable(&self, _wanted: Wanted<'_>) -> Result<Row, ReadError> {
        unreachable!("a committer loads")
    }

    async fn read(&self, _wanted: Wanted<'_>) -> Result<Row, ReadError> {
        Ok(self.row.lock().unwrap().clone())
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let names = changes.iter().map(|change| change.resource.to_string());
        self.applied.lock().unwrap().push(names.collect());
        let result = self.results.lock().unwrap().pop_front().unwrap_or(Ok(true));
        result.map(|applied| vec![applied; changes.len()])
    }

    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        let before = self.load(wanted).await.unwrap().into_iter().collect::<Result<Vec<_>, _>>()?;
        let after = decide(&before);
        let changes: Vec<_> = wanted
            .iter()
            .zip(before.iter().zip(&after))
            .filter(|(_, (before, after))| before != after)
            .map(|(wanted, (before, after))| Change {
                resource: wanted.resource,
                before,
                after,
                group: None,
            })
            .collect();
        Ok(self.apply(&changes).await?.iter().all(|applied| *applied))
    }

    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        Ok(vec![false; resources.len()])
    }

    fn connection_epoch(&self) -> u64 {
        0
    }

    async fn list(&self, _page: &Page) -> Result<Listing, Unreachable> {
        unreachable!("a committer lists nothing")
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        unreachable!("a committer probes nothing")
    }

    async fn close(&self) {
        unreachable!("a committer closes nothing")
    }
}

type Decision = oneshot::Receiver<Result<Decided, Unavailable>>;

fn claim(resource: &str, token: u64) -> (Job, Decision) {
    claim_under(Token::MAX, resource, token)
}

fn claim_under(ceiling: Token, resource: &str, token: u64) -> (Job, Decision) {
    let fence = Fence { token: Token::new(token).unwrap(), holder: Default::default() };
    let operation = Operation {
        resource: resource.parse().unwrap(),
        offered: Some(fence),
        ceiling,
        numbered: None,
        action: Action::Claim,
    };
    let (reply, decision) = oneshot::channel();
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    (Job::new(operation, reply, place), decision)
}

fn committer(
    results: impl IntoIterator<Item = Result<bool, ApplyError>>,
) -> (Arc<Scripted>, GroupCommit) {
    let results = Mutex::new(results.into_iter().collect());
    let store = Arc::new(Scripted { results, ..Scripted::default() });
    (
        store.clone(),
        GroupCommit::new(store, Enforcement::Enforce, Metrics::default().commits.clone()),
    )
}

fn outcome(decision: &mut Decision) -> Result<Outcome, UnavailableOutcome> {
    let decided = decision.try_recv().expect("the job was answered");
    decided.map(|decided| decided.outcome).map_err(|unavailable| unavailable.outcome)
}

#[tokio::test]
async fn operations_on_one_resource_become_one_change() {
    let (store, committer) = committer([]);
    let (jobs, mut decisions): (Vec<_>, Vec<_>) =
        [1, 3, 2].map(|token| claim("r", token)).into_iter().unzip();
    committer.commit(jobs).await;
    assert_eq!(*store.applied.lock().unwrap(), [["r"]]);
    let accepted =
        decisions.iter_mut().map(|decision| !matches!(outcome(decision), Ok(Outcome::Rejected(_))));
    assert_eq!(accepted.collect::<Vec<_>>(), [true, true, false]);
}

/// Both tries of a client are in one batch.
#[tokio::test]
async fn write_that_was_sent_again_takes_effect_once() {
    let outcomes = async |number: Option<&str>| {
        let (_, committer) = committer([]);
        let numbered_delete = || {
            let (mut job, decision) = claim("r", 1);
            let action = Action::Delete { condition: Default::default() };
            let number = number.map(|number| number.parse().unwrap());
            job.operation.numbered = number.map(|number| Numbered::new(number, &action));
            job.operation.action = action;
            (job, decision)
        };
        let (first, mut first_decision) = numbered_delete();
        let (second, mut second_decision) = numbered_delete();
        committer.commit(vec![first, second]).await;
        [outcome(&mut first_decision), outcome(&mut second_decision)]
    };
    let deleted = |version| Ok(Outcome::Deleted { version });
    assert_eq!(outcomes(Some("7")).await, [deleted(1), deleted(1)]);
    assert_eq!(outcomes(None).await, [deleted(1), deleted(2)], "the control");
}

#[tokio::test]
async fn unknown_outcome_is_never_reported_as_a_rejection_nor_the_other_way_round() {
    let lost = || sqlx::Error::Protocol("lost".to_owned());
    let cases = [
        (ApplyError::Unknown(lost()), UnavailableOutcome::Unknown),
        (ApplyError::Unchanged(lost()), UnavailableOutcome::None),
    ];
    for (error, expected) in cases {
        let (_, committer) = committer([Err(error)]);
        let (accepted, mut accepted_decision) = claim("r", 2);
        let (rejected, mut rejected_decision) = claim("r", 1);
        let (too_high, mut too_high_decision) = claim_under(Token::MIN, "r", 1003);
        committer.commit(vec![accepted, rejected, too_high]).await;
        assert_eq!(outcome(&mut accepted_decision), Err(expected));
        assert_eq!(outcome(&mut rejected_decision), Err(UnavailableOutcome::None));
        assert_eq!(outcome(&mut too_high_decision), Err(UnavailableOutcome::None));
    }
}

#[tokio::test]
async fn wrong_guess_is_loaded_and_decided_again() {
    let (store, committer) = committer([Ok(true), Ok(false)]);
    let (first, mut first_decision) = claim("r", 1);
    committer.commit(vec![first]).await;
    assert!(outcome(&mut first_decision).is_ok());
    // Meanwhile, another server has advanced the fence to 9.
    store.row.lock().unwrap().fence = claim("r", 9).0.operation.offered;
    let (late, mut late_decision) = claim("r", 5);
    let undecided = committer.commit(vec![late]).await;
    assert_eq!(undecided.contended.len(), 1, "the guess was wrong");
    assert_eq!(*store.loaded.lock().unwrap(), 1, "the row was guessed, not loaded");
    assert!(late_decision.try_recv().is_err(), "a wrong guess decides nothing");
    committer.commit(undecided.contended).await;
    assert_eq!(*store.loaded.lock().unwrap(), 2);
    assert!(matches!(outcome(&mut late_decision), Ok(Outcome::Rejected(_))));
}

#[tokio::test]
async fn rejection_is_never_reported_from_a_guess() {
    let (store, committer) = committer([]);
    committer.commit(vec![claim("r", 5).0]).await;
    let (late, mut late_decision) = claim("r", 4);
    store.row.lock().unwrap().fence = claim("r", 5).0.operation.offered;
    committer.commit(vec![late]).await;
    assert_eq!(
        *store.loaded.lock().unwrap(),
        2,
        "the row was loaded before the claim was rejected"
    );
    assert!(matches!(outcome(&mut late_decision), Ok(Outcome::Rejected(_))));
}

/// Seen from the guessed fence, the token is too high.
#[tokio::test]
async fn token_is_compared_with_the_ceiling_above_the_real_fence() {
    let (store, committer) = committer([]);
    committer.commit(vec![claim("r", 5).0]).await;
    let (next, mut next_decision) = claim_under(Token::MIN, "r", 3000);
    store.row.lock().unwrap().fence = claim("r", 2000).0.operation.offered;
    committer.commit(vec![next]).await;
    assert_eq!(outcome(&mut next_decision), Ok(Outcome::Claimed { version: 0 }));

    // The control: the real fence is as guessed.
    let (next, mut next_decision) = claim_under(Token::MIN, "r", 4001);
    store.row.lock().unwrap().fence = claim("r", 3000).0.operation.offered;
    committer.commit(vec![next]).await;
    assert!(matches!(outcome(&mut next_decision), Ok(Outcome::TokenTooHigh { .. })));
}

#[tokio::test]
async fn blocked_resource_is_found_by_halving_and_the_rest_goes_on() {
    let blocked = || Err(ApplyError::Blocked);
    // a b c d; c d; d; c; a b
    let (store, committer) = committer([blocked(), blocked(), Ok(true), blocked(), Ok(true)]);
    let (jobs, mut decisions): (Vec<_>, Vec<_>) =
        ["a", "b", "c", "d"].map(|resource| claim(resource, 1)).into_iter().unzip();
    let undecided = committer.commit(jobs).await;
    let applied =
        store.applied.lock().unwrap().iter().map(|names| names.concat()).collect::<Vec<_>>();
    assert_eq!(applied, ["abcd", "cd", "d", "c", "ab"]);
    let blocked = undecided.blocked.iter().map(|job| job.operation.resource.as_str());
    assert_eq!(blocked.collect::<Vec<_>>(), ["c"]);
    for answered in [0, 1, 3] {
        assert!(outcome(&mut decisions[answered]).is_ok());
    }
}

#[tokio::test]
async fn unreadable_row_fails_alone_and_is_never_written() {
    let (store, committer) = committer([]);
    let (jobs, mut decisions): (Vec<_>, Vec<_>) =
        ["a", "unreadable", "z"].map(|resource| claim(resource, 1)).into_iter().unzip();
    committer.commit(jobs).await;
    assert!(outcome(&mut decisions[0]).is_ok() && outcome(&mut decisions[2]).is_ok());
    assert_eq!(outcome(&mut decisions[1]), Err(UnavailableOutcome::None));

    let (job, mut decision) = claim("unreadable", 1);
    committer.commit_alone("unreadable".parse().unwrap(), vec![job]).await;
    assert_eq!(outcome(&mut decision), Err(UnavailableOutcome::None));
    assert_eq!(*store.applied.lock().unwrap(), [["a", "z"]]);
}

/// A large value would hold up the writes of others.
#[tokio::test]
async fn fenced_read_loads_no_large_value_beside_writes() {
    for is_blocked in [false, true] {
        let (store, committer) = committer([]);
        let described = StoredValue::NotLoaded(Described {
            content_type: Some("text/plain".to_owned()),
            size: 1 << 20,
            written_with: None,
        });
        *store.row.lock().unwrap() = Row { version: 1, value: described.clone(), ..Row::default() };
        let (mut read, mut decision) = claim("r", 1);
        read.operation.action = Action::Read;
        match is_blocked {
            false => drop(committer.commit(vec![read]).await),
            true => drop(committer.commit_alone("r".parse().unwrap(), vec![read]).await),
        }
        let read = Ok(Outcome::Read { version: 1, value: described });
        assert_eq!(outcome(&mut decision), read);
        assert_eq!(*store.wanted.lock().unwrap(), [WantedValue::AtMost(SMALL_BYTES)]);
    }
}

type TransactionDecision = oneshot::Receiver<Result<DecidedTransaction, Unavailable>>;

fn transaction<const N: usize>(claims: [(&str, u64); N]) -> (TransactionJob, TransactionDecision) {
    let writes = claims.map(|(resource, token)| claim(resource, token).0.operation).into();
    let transaction = Transaction { conditions: Vec::new(), writes, _memory: None };
    let (reply, decision) = oneshot::channel();
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    (Job::new(Arc::new(transaction), reply, place), decision)
}

/// Whether the transaction took effect.
fn is_accepted(decision: &mut TransactionDecision) -> Result<bool, UnavailableOutcome> {
    let decided = decision.try_recv().expect("the job was answered");
    decided.map(|decided| !decided.is_rejection()).map_err(|unavailable| unavailable.outcome)
}

#[tokio::test]
async fn transactions_of_one_batch_become_one_change_of_each_row() {
    let (store, committer) = committer([]);
    let (jobs, mut decisions): (Vec<_>, Vec<_>) = [
        transaction([("b", 1), ("a", 1)]),
        transaction([("b", 3), ("c", 1)]),
        transaction([("b", 2), ("d", 1)]),
    ]
    .into_iter()
    .unzip();
    assert!(committer.commit_transactions(jobs).await.is_empty());
    assert_eq!(*store.applied.lock().unwrap(), [["a", "b", "c"]], "in byte order, and without d");
    let accepted = decisions.iter_mut().map(is_accepted);
    assert_eq!(accepted.collect::<Vec<_>>(), [Ok(true), Ok(true), Ok(false)]);
}

#[tokio::test]
async fn unknown_outcome_of_a_transaction_is_never_reported_as_a_rejection() {
    let lost = || sqlx::Error::Protocol("lost".to_owned());
    let cases = [
        (ApplyError::Unknown(lost()), UnavailableOutcome::Unknown),
        (ApplyError::Unchanged(lost()), UnavailableOutcome::None),
    ];
    for (error, expected) in cases {
        let (_, committer) = committer([Err(error)]);
        let (accepted, mut accepted_decision) = transaction([("a", 2), ("b", 2)]);
        let (rejected, mut rejected_decision) = transaction([("b", 1), ("c", 1)]);
        assert!(committer.commit_transactions(vec![accepted, rejected]).await.is_empty());
        assert_eq!(is_accepted(&mut accepted_decision), Err(expected));
        assert_eq!(is_accepted(&mut rejected_decision), Err(UnavailableOutcome::None));
    }
}

#[tokio::test]
async fn transaction_on_an_unreadable_row_fails_alone() {
    let (_, committer) = committer([]);
    let (jobs, mut decisions): (Vec<_>, Vec<_>) = [
        transaction([("a", 1), ("b", 1)]),
        transaction([("c", 1), ("unreadable", 1)]),
        transaction([("d", 1), ("e", 1)]),
    ]
    .into_iter()
    .unzip();
    assert!(committer.commit_transactions(jobs).await.is_empty());
    let accepted = decisions.iter_mut().map(is_accepted);
    let none = UnavailableOutcome::None;
    assert_eq!(accepted.collect::<Vec<_>>(), [Ok(true), Err(none), Ok(true)]);
}

#[tokio::test]
async fn contended_and_blocked_transactions_are_kept_undecided() {
    // Both; each of them; and again.
    let blocked = || Err(ApplyError::Blocked);
    let (_, committer) = committer([blocked(), Ok(false), blocked()]);
    let (one, mut one_decision) = transaction([("a", 1), ("b", 1)]);
    let (other, mut other_decision) = transaction([("c", 1), ("d", 1)]);
    let undecided = committer.commit_transactions(vec![one, other]).await;
    assert_eq!(undecided.len(), 2);
    assert!(one_decision.try_recv().is_err() && other_decision.try_recv().is_err());
    assert!(committer.retry_transactions(undecided).await.is_empty());
    assert_eq!(is_accepted(&mut one_decision), Ok(true));
    assert_eq!(is_accepted(&mut other_decision), Ok(true));
}

/// A rejection, or a change that was left out, does not show that the database takes writes.
#[tokio::test]
async fn only_a_change_shows_that_commits_succeed_again() {
    for (token, is_applied, is_forgotten) in [(4, true, false), (6, false, false), (6, true, true)]
    {
        for lane in ["batch", "blocked", "transaction"] {
            let full = ApplyError::Unchanged(sqlx::Error::Protocol("full".to_owned()));
            let (store, committer) = committer([Err(full), Ok(is_applied)]);
            store.row.lock().unwrap().fence = claim("r", 5).0.operation.offered;
            committer.commit(vec![claim("r", 6).0]).await;
            assert!(committer.last_failure().recent().is_some());
            let job = claim("r", token).0;
            match lane {
                "batch" => drop(committer.commit(vec![job]).await),
                "blocked" => drop(committer.commit_alone("r".parse().unwrap(), vec![job]).await),
                _ => {
                    let job = transaction([("r", token)]).0;
                    committer.commit_transactions(vec![job]).await;
                }
            }
            let last_failure = committer.last_failure().recent();
            assert_eq!(last_failure.is_none(), is_forgotten, "{lane}, {token}, {is_applied}");
        }
    }
}
