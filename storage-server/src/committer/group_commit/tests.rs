//! Batches against a store that fails as it is told.

use std::time::Duration;

use fence::{ResourceName, Token};
use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::{
    committer::{
        fake_store::{FakeStore, OVERTAKEN, UNREACHABLE, UNREADABLE, operation, transaction},
        job::Obstacle,
    },
    memory_budget::SMALL_BYTES,
    metrics::Metrics,
    operation::{Action, Condition, Operation, Outcome, Versions},
    row::{Described, StoredValue},
    sequence::Numbered,
    store::WantedValue,
    transaction::{DecidedTransaction, ResourceCondition, Transaction},
};

type Decision = oneshot::Receiver<Result<DecidedTransaction, Unavailable>>;

fn queue(transaction: Arc<Transaction>) -> (Job, Decision) {
    let (reply, decision) = oneshot::channel();
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    (Job::new(transaction, reply, place), decision)
}

/// Claims of these resources with these tokens.
fn claims<const N: usize>(claims: [(&str, u64); N]) -> (Job, Decision) {
    let claims = claims.map(|(resource, token)| operation(resource, token, Action::Claim));
    queue(transaction(claims.into()))
}

fn claim(resource: &str, token: u64) -> (Job, Decision) {
    claims([(resource, token)])
}

fn claim_under(ceiling: Token, resource: &str, token: u64) -> (Job, Decision) {
    let operation = Operation { ceiling, ..operation(resource, token, Action::Claim) };
    queue(transaction(vec![operation]))
}

fn committer() -> (Arc<FakeStore>, GroupCommit) {
    let (store, commits) = (Arc::new(FakeStore::default()), Metrics::default().commits.clone());
    (store.clone(), GroupCommit::new(store, Enforcement::Enforce, commits))
}

/// A committer whose next statements fail so.
fn failing(errors: impl IntoIterator<Item = Option<ApplyError>>) -> (Arc<FakeStore>, GroupCommit) {
    let (store, committer) = committer();
    store.errors.lock().unwrap().extend(errors);
    (store, committer)
}

/// Commits a batch, or decides it under locks, all as those of the first one's resource.
async fn commit(committer: &GroupCommit, is_blocked: bool, jobs: Vec<Job>) -> Vec<Job> {
    let resource = jobs[0].transaction.resources().next().unwrap().clone();
    match is_blocked {
        false => committer.commit(jobs).await,
        true => committer.commit_under_locks(&resource, jobs).await,
    }
}

fn outcome(decision: &mut Decision) -> Result<Outcome, UnavailableOutcome> {
    let decided = decision.try_recv().expect("the job was answered");
    decided
        .map(|mut decided| decided.writes.pop().unwrap().outcome)
        .map_err(|unavailable| unavailable.outcome)
}

/// Whether the transaction took effect.
fn is_accepted(decision: &mut Decision) -> Result<bool, UnavailableOutcome> {
    let decided = decision.try_recv().expect("the job was answered");
    decided.map(|decided| !decided.is_rejection()).map_err(|unavailable| unavailable.outcome)
}

fn locked(resource: &str) -> Option<Obstacle> {
    Some(Obstacle::Lock(resource.parse().unwrap()))
}

fn obstacles(undecided: &[Job]) -> Vec<(&str, Option<Obstacle>)> {
    let mut obstacles: Vec<_> = undecided
        .iter()
        .map(|job| (job.transaction.resources().next().unwrap().as_str(), job.obstacle.clone()))
        .collect();
    obstacles.sort_by_key(|(resource, _)| *resource);
    obstacles
}

fn loaded(store: &FakeStore) -> usize {
    store.wanted.lock().unwrap().len()
}

#[tokio::test]
async fn operations_on_one_resource_become_one_change() {
    let (store, committer) = committer();
    let (jobs, mut decisions): (Vec<_>, Vec<_>) = [
        claims([("b", 1), ("a", 1)]),
        claims([("b", 3), ("c", 1)]),
        claims([("b", 2), ("d", 1)]),
        claim("c", 2),
        claim("c", 1),
    ]
    .into_iter()
    .unzip();
    assert!(committer.commit(jobs).await.is_empty());
    assert_eq!(*store.applied.lock().unwrap(), [["a", "b", "c", "d"]], "in byte order");
    let accepted: Vec<_> = decisions.iter_mut().map(is_accepted).collect();
    assert_eq!(accepted, [Ok(true), Ok(true), Ok(false), Ok(true), Ok(false)]);
}

/// Both tries of a client are in one batch.
#[tokio::test]
async fn write_that_was_sent_again_takes_effect_once() {
    let outcomes = async |number: Option<&str>| {
        let (_, committer) = committer();
        let numbered_delete = || {
            let action = Action::Delete { condition: Default::default() };
            let number = number.map(|number| number.parse().unwrap());
            let numbered = number.map(|number| Numbered::new(number, &action));
            queue(transaction(vec![Operation { numbered, ..operation("r", 1, action) }]))
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
    for (is_known, expected) in
        [(false, UnavailableOutcome::Unknown), (true, UnavailableOutcome::None)]
    {
        for is_blocked in [false, true] {
            let error = if is_known { ApplyError::Unchanged } else { ApplyError::Unknown };
            let (_, committer) = failing([Some(error(lost()))]);
            let (accepted, mut accepted_decision) = claims([("a", 2), ("b", 2)]);
            let (rejected, mut rejected_decision) = claims([("b", 1), ("c", 1)]);
            let (too_high, mut too_high_decision) = claim_under(Token::MIN, "b", 1003);
            let jobs = vec![accepted, rejected, too_high];
            assert!(commit(&committer, is_blocked, jobs).await.is_empty());
            assert_eq!(is_accepted(&mut accepted_decision), Err(expected));
            assert_eq!(is_accepted(&mut rejected_decision), Err(UnavailableOutcome::None));
            assert_eq!(outcome(&mut too_high_decision), Err(UnavailableOutcome::None));
        }
    }
}

#[tokio::test]
async fn wrong_guess_is_loaded_and_decided_again() {
    let (store, committer) = committer();
    let (first, mut first_decision) = claim("r", 1);
    committer.commit(vec![first]).await;
    assert!(outcome(&mut first_decision).is_ok());
    // Meanwhile, another server has advanced the fence to 9.
    store.set_fence("r", 9);
    let (late, mut late_decision) = claim("r", 5);
    let undecided = committer.commit(vec![late]).await;
    assert_eq!(obstacles(&undecided), [("r", Some(Obstacle::Rivals))], "the guess was wrong");
    assert_eq!(loaded(&store), 1, "the row was guessed, not loaded");
    assert!(late_decision.try_recv().is_err(), "a wrong guess decides nothing");
    committer.commit(undecided).await;
    assert_eq!(loaded(&store), 2);
    assert!(matches!(outcome(&mut late_decision), Ok(Outcome::Rejected(_))));
}

#[tokio::test]
async fn rejection_is_never_reported_from_a_guess() {
    let (store, committer) = committer();
    committer.commit(vec![claim("r", 5).0]).await;
    let (late, mut late_decision) = claim("r", 4);
    committer.commit(vec![late]).await;
    assert_eq!(loaded(&store), 2, "the row was loaded before the claim was rejected");
    assert!(matches!(outcome(&mut late_decision), Ok(Outcome::Rejected(_))));
}

/// Seen from the guessed fence, the token is too high.
#[tokio::test]
async fn token_is_compared_with_the_ceiling_above_the_real_fence() {
    let (store, committer) = committer();
    committer.commit(vec![claim("r", 5).0]).await;
    let (next, mut next_decision) = claim_under(Token::MIN, "r", 3000);
    store.set_fence("r", 2000);
    committer.commit(vec![next]).await;
    assert_eq!(outcome(&mut next_decision), Ok(Outcome::Claimed { version: 0 }));

    // The control: the real fence is as guessed.
    let (next, mut next_decision) = claim_under(Token::MIN, "r", 4001);
    committer.commit(vec![next]).await;
    assert!(matches!(outcome(&mut next_decision), Ok(Outcome::TokenTooHigh { .. })));
}

/// A rival inserts a row of the batch. Its lock can't be seen, and a group fails if the rival is faster.
#[tokio::test]
async fn new_rows_that_a_rival_may_insert_hold_up_no_others() {
    for error in [|| ApplyError::Blocked, || ApplyError::LostRace] {
        let (store, committer) = failing([Some(error())]);
        store.set_fence("old", 1);
        let (new, mut new_decision) = claims([("new", 1), ("other", 1)]);
        let (old, mut old_decision) = claim("old", 2);
        let undecided = committer.commit(vec![new, old]).await;
        assert_eq!(*store.changed.lock().unwrap(), ["old"]);
        assert_eq!(obstacles(&undecided), [("new", Some(Obstacle::Rivals))]);
        assert_eq!(is_accepted(&mut old_decision), Ok(true));
        // Under locks, it is no error either.
        store.errors.lock().unwrap().push_back(Some(error()));
        let undecided = commit(&committer, true, undecided).await;
        assert_eq!(undecided.len(), 1);
        assert!(committer.commit(undecided).await.is_empty());
        assert_eq!(is_accepted(&mut new_decision), Ok(true));
        // Without a new row, nobody knows what was in the way.
        store.errors.lock().unwrap().push_back(Some(error()));
        let undecided = committer.commit(vec![claim("old", 3).0]).await;
        assert_eq!(obstacles(&undecided), [("old", Some(Obstacle::Rivals))]);
    }
}

#[tokio::test]
async fn unreadable_row_fails_alone_and_is_never_written() {
    for is_blocked in [false, true] {
        let (store, committer) = committer();
        let (mut jobs, mut decisions): (Vec<_>, Vec<_>) =
            [claims([("c", 1), (UNREADABLE, 1)]), claims([("c", 1), ("d", 1)])].into_iter().unzip();
        if !is_blocked {
            let (job, decision) = claim("a", 1);
            jobs.push(job);
            decisions.push(decision);
        }
        // The second one shares a resource, and is tried again without the other.
        for left in [1, 0] {
            jobs = commit(&committer, is_blocked, jobs).await;
            assert_eq!(jobs.len(), left);
        }
        let mut accepted = decisions.iter_mut().map(is_accepted);
        assert_eq!(accepted.next(), Some(Err(UnavailableOutcome::None)));
        assert!(accepted.all(|accepted| accepted == Ok(true)));
        assert!(!store.changed.lock().unwrap().iter().any(|changed| changed == UNREADABLE));
    }
}

/// A large value would hold up the writes of others.
#[tokio::test]
async fn only_a_small_value_that_is_read_is_loaded() {
    for is_blocked in [false, true] {
        let (store, committer) = committer();
        let described = StoredValue::NotLoaded(Described {
            content_type: Some("text/plain".to_owned()),
            size: 1 << 20,
            written_with: None,
        });
        let row = Row { version: 1, value: described.clone(), ..Row::default() };
        store.rows.lock().unwrap().insert("r".parse().unwrap(), row);
        let claim = |resource| operation(resource, 1, Action::Claim);
        let read = operation("r", 1, Action::Read);
        let (read, mut decision) = queue(transaction(vec![claim("a"), claim("z"), read]));
        commit(&committer, is_blocked, vec![read]).await;
        assert_eq!(outcome(&mut decision), Ok(Outcome::Read { version: 1, value: described }));
        let (nothing, value) = (WantedValue::Description, WantedValue::AtMost(SMALL_BYTES));
        assert_eq!(*store.wanted.lock().unwrap(), [nothing, value, nothing]);
    }
}

/// A rival has changed one row.
#[tokio::test]
async fn overtaken_group_is_left_out_and_the_others_are_made() {
    let (store, committer) = committer();
    let (jobs, mut decisions): (Vec<_>, Vec<_>) = [
        claims([("a", 1), (OVERTAKEN, 2)]),
        // It would be rejected, and is not answered: the fence is another by now.
        claims([(OVERTAKEN, 1), ("b", 1)]),
        claim("b", 2),
        claims([("c", 1), ("d", 1)]),
        claim("e", 1),
    ]
    .into_iter()
    .unzip();
    let undecided = committer.commit(jobs).await;
    let undecided = obstacles(&undecided);
    let expected = ["a", "b", OVERTAKEN].map(|resource| (resource, Some(Obstacle::Rivals)));
    assert_eq!(undecided, expected);
    assert_eq!(*store.changed.lock().unwrap(), ["c", "d", "e"]);
    assert!(decisions[..3].iter_mut().all(|decision| decision.try_recv().is_err()));
    assert!(decisions[3..].iter_mut().all(|decision| is_accepted(decision) == Ok(true)));
}

/// What a transaction only compares belongs to its change. What a rejected one has compared, too.
#[tokio::test]
async fn compared_rows_are_checked_with_the_changes_of_their_group() {
    let (store, committer) = committer();
    let transaction = |compared: &str, if_match, written| {
        let condition = Condition { if_match, if_none_match: None };
        let conditions = vec![ResourceCondition { resource: compared.parse().unwrap(), condition }];
        let writes = vec![operation(written, 1, Action::Claim)];
        queue(Arc::new(Transaction { conditions, writes, _memory: None }))
    };
    let (accepted, mut accepted_decision) = transaction("compared", None, "written");
    let (rejected, mut rejected_decision) = transaction("other", Some(Versions::Any), "written");
    committer.commit(vec![accepted, rejected]).await;
    assert_eq!(*store.applied.lock().unwrap(), [["compared", "other", "written"]]);
    assert_eq!(is_accepted(&mut accepted_decision), Ok(true));
    assert_eq!(is_accepted(&mut rejected_decision), Ok(false));
    // The control: what changes nothing was decided on rows of one moment.
    let (rejected, mut rejected_decision) = transaction("other", Some(Versions::Any), "third");
    committer.commit(vec![rejected]).await;
    assert_eq!(store.applied.lock().unwrap().len(), 1);
    assert_eq!(is_accepted(&mut rejected_decision), Ok(false));
}

/// In a batch, or under locks.
#[tokio::test]
async fn transactions_on_rows_that_were_changed_last_load_nothing() {
    for is_blocked in [false, true] {
        let (store, committer) = committer();
        commit(&committer, is_blocked, vec![claims([("a", 1), ("b", 1)]).0]).await;
        for token in 2..4 {
            let (job, mut decision) = claims([("a", token), ("b", token)]);
            committer.commit(vec![job]).await;
            assert_eq!(is_accepted(&mut decision), Ok(true));
            assert_eq!(loaded(&store), 2, "by the first one");
        }
        // One row of the two is not known.
        committer.commit(vec![claims([("b", 4), ("c", 4)]).0]).await;
        assert_eq!(loaded(&store), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn blocked_transactions_are_kept_undecided_and_hold_up_no_others() {
    let (store, committer) = committer();
    store.lock(["b", "d"]);
    let (one, mut one_decision) = claims([("a", 1), ("b", 1)]);
    let (other, mut other_decision) = claims([("a", 1), ("c", 1)]);
    let (free, mut free_decision) = claims([("e", 1), ("f", 1)]);
    let undecided = committer.commit(vec![one, other, free]).await;
    assert_eq!(is_accepted(&mut free_decision), Ok(true));
    assert!(one_decision.try_recv().is_err() && other_decision.try_recv().is_err());
    // Nothing is in the way of one that names no locked row.
    assert_eq!(obstacles(&undecided), [("a", locked("b")), ("a", None)]);
    let undecided = commit(&committer, true, undecided).await;
    assert_eq!(obstacles(&undecided), [("a", locked("b")), ("a", None)]);
    store.lock([]);
    assert!(commit(&committer, true, undecided).await.is_empty());
    assert_eq!(is_accepted(&mut one_decision), Ok(true));
    assert_eq!(is_accepted(&mut other_decision), Ok(true));
}

/// Nobody knows then whose lock it is. Rows that nobody locks are changed all the same, each under its lock.
#[tokio::test]
async fn locks_that_cannot_be_seen_are_no_reason_to_give_up() {
    let (store, committer) = committer();
    let resources = ["a", "b", "c"];
    let (jobs, mut decisions): (Vec<_>, Vec<_>) =
        resources.map(|resource| claim(resource, 1)).into_iter().unzip();
    store.lock(["b", UNREACHABLE]);
    let undecided = committer.commit(jobs).await;
    assert_eq!(undecided.len(), 3);
    tokio::time::sleep(Duration::from_millis(50)).await;
    for job in undecided {
        let resource: ResourceName = job.blocked_by().expect("it has a lane").clone();
        let undecided = committer.commit_under_locks(&resource, vec![job]).await;
        assert_eq!(undecided.len(), usize::from(resource.as_str() == "b"));
    }
    assert_eq!(is_accepted(&mut decisions[0]), Ok(true));
    assert!(decisions[1].try_recv().is_err());
    assert_eq!(is_accepted(&mut decisions[2]), Ok(true));
}

/// A rejection, or a change that was left out, does not show that the database takes writes.
#[tokio::test]
async fn only_a_change_shows_that_commits_succeed_again() {
    for is_blocked in [false, true] {
        for (resource, token, is_forgotten) in
            [("r", 7, true), ("r", 3, false), (OVERTAKEN, 7, is_blocked)]
        {
            let full = ApplyError::Unchanged(sqlx::Error::Protocol("disk full".to_owned()));
            let (store, committer) = failing([Some(full)]);
            store.set_fence(resource, 5);
            committer.commit(vec![claim(resource, 6).0]).await;
            assert!(committer.last_failure().recent().is_some());
            commit(&committer, is_blocked, vec![claim(resource, token).0]).await;
            let last_failure = committer.last_failure().recent();
            assert_eq!(last_failure.is_none(), is_forgotten, "{is_blocked}, {resource}, {token}");
        }
    }
}
