use std::collections::BTreeMap;

use bytes::Bytes;
use fence::Fence;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use super::{answers::KEPT, *};
use crate::{
    config::Enforcement,
    operation::{Condition, Content, Decided, Operation, Outcome, Versions},
    row::Row,
};

/// Requests that differ in one thing each.
fn actions() -> Vec<Action> {
    let write = |content_type: &str, bytes: &'static str, condition: &Condition| {
        let content = Content {
            content_type: content_type.to_owned(),
            bytes: Bytes::from_static(bytes.as_bytes()),
        };
        Action::Write { content, condition: condition.clone() }
    };
    let free = Condition::default();
    let listed = Condition { if_match: Some(Versions::Listed(vec![1, 2])), ..free.clone() };
    let any = Condition { if_none_match: Some(Versions::Any), ..free.clone() };
    vec![
        write("text/plain", "ab", &free),
        write("text/plain", "a", &free),
        write("text/plaina", "b", &free),
        write("text/plain", "ab", &listed),
        write("text/plain", "ab", &any),
        Action::Delete { condition: free },
        Action::Delete { condition: listed },
    ]
}

/// Operations: the token, how far the number is above the highest one, and the action.
fn operations() -> impl Strategy<Value = Vec<(u64, i64, usize)>> {
    let distances = prop_oneof![4 => Just(1_i64), 1 => 2..6_i64, 3 => -20..=0_i64];
    vec((prop_oneof![40 => Just(1), 1 => 1..4_u64], distances, 0..actions().len()), 0..100)
}

type Apply = fn(&mut Row, &Operation) -> Decided;

fn apply(row: &mut Row, operation: &Operation) -> Decided {
    row.apply(operation, Enforcement::Enforce)
}

/// Applies the operations, and compares each answer with a memory that forgets nothing.
fn check(apply: Apply, operations: &[(u64, i64, usize)]) -> Result<(), TestCaseError> {
    let (mut row, actions) = (Row::default(), actions());
    let mut first: BTreeMap<u64, (usize, Outcome)> = BTreeMap::new();
    for &(token, distance, index) in operations {
        let action = actions[index].clone();
        let offered = Fence { token: Token::new(token).unwrap(), holder: Default::default() };
        if row.fence.as_ref().is_some_and(|fence| token < fence.token.as_u64()) {
            continue;
        }
        if row.fence.as_ref() != Some(&offered) {
            first.clear();
        }
        let highest = first.last_key_value().map_or(0, |(number, _)| *number);
        let number = highest.saturating_add_signed(distance).max(1);
        let sequence = Sequence(number);
        let numbered = Some(Numbered::new(sequence, &action));
        let operation = Operation {
            resource: "r".parse().unwrap(),
            offered: Some(offered),
            ceiling: Token::MAX,
            numbered,
            action,
        };
        let before = row.clone();
        let plain = Operation { numbered: None, ..operation.clone() };
        let expected = before.clone().apply(&plain, Enforcement::Enforce).outcome;
        let outcome = apply(&mut row, &operation).outcome;
        let above = first.range(number + 1..).count();
        if above == 0 && !first.contains_key(&number) {
            prop_assert_eq!(&outcome, &expected);
            first.insert(number, (index, outcome));
            continue;
        }
        prop_assert_eq!((row.version, &row.value), (before.version, &before.value));
        match first.get(&number) {
            Some((used, answer)) if above < KEPT && *used == index => {
                prop_assert_eq!(&outcome, answer);
            }
            Some(_) if above < KEPT => {
                prop_assert_eq!(outcome, Outcome::SequenceReused { sequence });
            }
            used => {
                let Outcome::SequenceTooOld { highest: shown, may_be_forgotten, .. } = outcome
                else {
                    let reason = format!("{outcome:?} to {number} below {highest}");
                    return Err(TestCaseError::fail(reason));
                };
                prop_assert_eq!(shown, Sequence(highest));
                prop_assert!(used.is_none() || may_be_forgotten, "{} was used", number);
                prop_assert!(first.len() >= KEPT || !may_be_forgotten);
            }
        }
    }
    Ok(())
}

fn run(apply: Apply) -> Result<(), impl std::fmt::Display> {
    TestRunner::default().run(&operations(), |operations| check(apply, &operations))
}

#[test]
fn numbered_write_takes_effect_once_and_has_one_answer() {
    run(apply).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn wrong_ways_fail_the_same_check() {
    let without_numbers: Apply =
        |row, operation| apply(row, &Operation { numbered: None, ..operation.clone() });
    let only_the_number: Apply = |row, operation| {
        let number = |it: Numbered| Numbered { request: Digest::default(), ..it };
        let numbered = operation.numbered.map(number);
        apply(row, &Operation { numbered, ..operation.clone() })
    };
    let forgetful: Apply = |row, operation| {
        let decided = apply(row, operation);
        if row.answers.len() > KEPT / 2 {
            row.answers.kept.remove(0);
        }
        decided
    };
    for wrong in [without_numbers, only_the_number, forgetful] {
        assert!(run(wrong).is_err());
    }
}

#[test]
fn answers_are_read_back_from_their_text() {
    let mut row = Row::default();
    for (number, action) in (1..).zip(actions()) {
        let numbered = Some(Numbered::new(Sequence(number), &action));
        let offered = Some(Fence { token: Token::MIN, holder: "h".parse().unwrap() });
        let (resource, ceiling) = ("r".parse().unwrap(), Token::MAX);
        apply(&mut row, &Operation { resource, offered, ceiling, numbered, action });
    }
    let text = row.answers.to_string();
    assert_eq!(text.parse(), Ok(row.answers));
    // Databases keep these hashes: they stay the same for ever.
    let first = "27c480d0fac2e742a19bf7729700be6b 1:created:1:89d319d0fb753f78d8041c0d7f6672aa ";
    assert!(text.starts_with(first), "{text}");
}

#[test]
fn other_texts_are_no_answers() {
    let hash = "0123456789abcdef0123456789abcdef";
    let one = format!("{hash} 7:created:1:{hash}");
    assert!(one.parse::<Answers>().is_ok());
    for wrong in [
        String::new(),
        hash.to_owned(),
        format!("{one} "),
        format!("{one} 7:deleted:2:{hash}"),
        format!("{one} 6:deleted:2:{hash}"),
        format!("{one} 08:deleted:2:{hash}"),
        format!("{one} 8:deleted:+2:{hash}"),
        format!("{one} 8:removed:2:{hash}"),
        format!("{one} 8:deleted:2:{hash}:"),
        format!("{one} 8:deleted:2:{}", hash.to_uppercase()),
        format!(
            "{hash}{}",
            (1..=17).map(|n| format!(" {n}:deleted:{n}:{hash}")).collect::<String>()
        ),
    ] {
        assert_eq!(wrong.parse::<Answers>(), Err(InvalidAnswers), "{wrong}");
    }
}
