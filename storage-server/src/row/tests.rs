use bytes::Bytes;
use fence::Token;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use super::*;
use crate::operation::{Condition, Content, Versions};

fn offer(tokens: impl Strategy<Value = u64>) -> impl Strategy<Value = Option<Fence>> {
    let fence = (tokens, prop_oneof!["", "a", "b"]).prop_map(|(token, holder)| Fence {
        token: Token::new(token).unwrap(),
        holder: holder.parse().unwrap(),
    });
    proptest::option::weighted(0.9, fence)
}

fn condition() -> impl Strategy<Value = Condition> {
    let versions = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Versions::Any)),
        1 => vec(0..8_u64, 1..4).prop_map(|versions| Some(Versions::Listed(versions))),
    ];
    (versions.clone(), versions)
        .prop_map(|(if_match, if_none_match)| Condition { if_match, if_none_match })
}

fn action() -> impl Strategy<Value = Action> {
    let content = vec(any::<u8>(), 0..4).prop_map(|bytes| Content {
        content_type: "text/plain".to_owned(),
        bytes: Bytes::from(bytes),
    });
    prop_oneof![
        Just(Action::Claim),
        Just(Action::Read),
        (content, condition())
            .prop_map(|(content, condition)| Action::Write { content, condition }),
        condition().prop_map(|condition| Action::Delete { condition }),
    ]
}

fn operations_with(
    tokens: impl Strategy<Value = u64>,
    ceilings: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Vec<Operation>> {
    let operation =
        (offer(tokens), ceilings, action()).prop_map(|(offered, ceiling, action)| Operation {
            resource: "r".parse().unwrap(),
            offered,
            ceiling: Token::new(ceiling).unwrap(),
            numbered: None,
            action,
        });
    vec(operation, 0..24)
}

/// Operations with so few tokens that equal ones meet often.
fn operations() -> impl Strategy<Value = Vec<Operation>> {
    operations_with(1..5_u64, Just(Token::MAX.as_u64()))
}

fn operations_under_ceilings() -> impl Strategy<Value = Vec<Operation>> {
    let heights = || {
        let highest = Token::MAX.as_u64();
        prop_oneof![1..4000_u64, 100_000..104_000_u64, highest - 2000..=highest]
    };
    operations_with(heights(), heights())
}

type Apply = fn(&mut Row, &Operation, Enforcement) -> Decided;

/// Applies the operations in order, and checks what the ceiling promises.
fn check_ceiling(
    apply: Apply,
    operations: &[Operation],
    enforcement: Enforcement,
) -> Result<(), TestCaseError> {
    let fence = |row: &Row| row.fence_token().map_or(0, Token::as_u64);
    let mut row = Row::default();
    for operation in operations {
        let before = row.clone();
        let decided = apply(&mut row, operation, enforcement);
        let ceiling = operation.ceiling.as_u64();
        prop_assert!(fence(&row) >= fence(&before), "the fence went down");
        prop_assert!(
            fence(&row) <= ceiling.max(fence(&before) + 1000),
            "the fence rose by more than a step above the ceiling"
        );
        let offered = operation.offered.as_ref().map_or(0, |offered| offered.token.as_u64());
        let is_too_high = matches!(decided.outcome, Outcome::TokenTooHigh { .. });
        prop_assert_eq!(is_too_high, offered > ceiling.max(fence(&before) + 1000));
        prop_assert!(!is_too_high || row == before, "a rejected token changed something");
    }
    Ok(())
}

fn run_ceiling(apply: Apply) -> Result<(), impl std::fmt::Display> {
    let cases = (operations_under_ceilings(), enforcement());
    TestRunner::default()
        .run(&cases, |(operations, enforcement)| check_ceiling(apply, &operations, enforcement))
}

#[test]
fn fence_rises_above_the_ceiling_only_in_steps() {
    run_ceiling(Row::apply).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn wrong_ceilings_fail_the_same_check() {
    let none: Apply = |row, operation, enforcement| {
        row.apply(&Operation { ceiling: Token::MAX, ..operation.clone() }, enforcement)
    };
    let without_steps: Apply = |row, operation, enforcement| match operation.offered {
        Some(Fence { token, .. }) if token > operation.ceiling => Decided {
            outcome: Outcome::TokenTooHigh { token, ceiling: operation.ceiling },
            overruled: None,
        },
        _ => row.apply(operation, enforcement),
    };
    let only_if_enforced: Apply = |row, operation, enforcement| match enforcement {
        Enforcement::Enforce => row.apply(operation, enforcement),
        Enforcement::Report | Enforcement::Off => {
            row.apply(&Operation { ceiling: Token::MAX, ..operation.clone() }, enforcement)
        }
    };
    for wrong in [none, without_steps, only_if_enforced] {
        assert!(run_ceiling(wrong).is_err());
    }
}

/// A common fence above the ceiling must not lock out the clients that take a token just above it.
#[test]
fn step_above_a_common_fence_is_allowed() {
    let common_fence = Token::new(9000).unwrap();
    let claim = |token| Operation {
        resource: "r".parse().unwrap(),
        offered: Some(Fence { token: Token::new(token).unwrap(), holder: Holder::default() }),
        ceiling: Token::MIN,
        numbered: None,
        action: Action::Claim,
    };
    let decide = |token| {
        let mut row = Row { common_fence: Some(common_fence), ..Row::default() };
        row.apply(&claim(token), Enforcement::Enforce).outcome
    };
    assert_eq!(decide(10_000), Outcome::Claimed { version: 0 });
    let (token, ceiling) = (Token::new(10_001).unwrap(), Token::new(10_000).unwrap());
    assert_eq!(decide(10_001), Outcome::TokenTooHigh { token, ceiling });
}

fn enforcement() -> impl Strategy<Value = Enforcement> {
    prop_oneof![Just(Enforcement::Enforce), Just(Enforcement::Report), Just(Enforcement::Off)]
}

proptest! {
    #[test]
    fn versions_have_no_gaps_and_the_fence_never_falls(
        operations in operations(),
        enforcement in enforcement(),
    ) {
        let mut row = Row::default();
        for operation in &operations {
            let before = row.clone();
            let decided = row.apply(operation, enforcement);
            prop_assert!(
                row.fence.as_ref().map(|fence| fence.token)
                    >= before.fence.as_ref().map(|fence| fence.token)
            );
            match decided.outcome {
                Outcome::Written { version, .. } | Outcome::Deleted { version } => {
                    prop_assert_eq!(version, before.version + 1);
                    prop_assert_eq!(row.version, version);
                }
                Outcome::Rejected(_)
                | Outcome::TokenTooHigh { .. }
                | Outcome::SequenceReused { .. }
                | Outcome::SequenceTooOld { .. } => {
                    prop_assert_eq!(&row, &before);
                }
                Outcome::Claimed { version }
                | Outcome::Read { version, .. }
                | Outcome::VersionMismatch { version } => {
                    prop_assert_eq!(version, before.version);
                    prop_assert_eq!(&row.value, &before.value);
                }
            }
        }
    }

    /// A common fence rejects all tokens up to it, even without a fence, and changes nothing else.
    #[test]
    fn common_fence_rejects_every_token_up_to_it(common_fence in 0..6_u64, operations in operations()) {
        let common_fence = Token::new(common_fence).ok();
        let mut row = Row { common_fence, ..Row::default() };
        let mut without_common_fence = Row::default();
        for operation in &operations {
            let is_stale = operation.offered.as_ref().is_some_and(|it| Some(it.token) <= common_fence);
            let decided = row.apply(operation, Enforcement::Enforce);
            if is_stale {
                let rejection = match decided.outcome {
                    Outcome::Rejected(rejection) => rejection,
                    other => panic!("{other:?} below the common fence"),
                };
                prop_assert_eq!(rejection.reason, RejectionReason::Stale);
                prop_assert_eq!(Some(rejection.highest_token), row.highest_token());
            } else {
                prop_assert_eq!(decided, without_common_fence.apply(operation, Enforcement::Enforce));
            }
            prop_assert_eq!(&row.fence, &without_common_fence.fence);
            prop_assert_eq!(row.holder().is_none(), row.fence.is_none());
        }
    }

    #[test]
    fn only_a_server_that_does_not_enforce_overrules(
        operations in operations(),
        enforcement in enforcement(),
    ) {
        let mut row = Row::default();
        for operation in &operations {
            let rejection = row.clone().claim(operation.offered.as_ref()).err();
            let decided = row.apply(operation, enforcement);
            if enforcement == Enforcement::Enforce {
                prop_assert_eq!(decided.overruled, None);
                let rejected = matches!(decided.outcome, Outcome::Rejected(_));
                prop_assert_eq!(rejected, rejection.is_some());
            } else {
                prop_assert_eq!(decided.overruled, rejection);
                prop_assert!(!matches!(decided.outcome, Outcome::Rejected(_)));
            }
        }
    }
}
