//! Writes that may be sent again: their numbers, and the answers that are kept for them.
//!
//! A client whose write was not answered can't know whether it took effect. If it numbers its
//! writes, it can send the same one again, and gets the first answer. The answers are a part of the
//! resource's row, so they are committed together with the write.

use std::{fmt, str::FromStr};

use fence::{Fence, InvalidToken, Token};
use sha2::{Digest as _, Sha256};

use crate::operation::{Action, Condition, Outcome, Versions};

/// How many answers are kept for a resource.
const KEPT: usize = 16;

/// The number of a write. It rises with each write to one resource under one token and holder. It
/// has the range and the syntax of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// The sequence as a number.
    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }
}

impl FromStr for Sequence {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        text.parse().map(|number: Token| Self(number.as_u64()))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a write, and a hash of everything else that its client has requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) sequence: Sequence,
    request: Digest,
}

impl Numbered {
    pub(crate) fn new(sequence: Sequence, action: &Action) -> Self {
        Self { sequence, request: Digest::of_request(action) }
    }
}

/// The first 128 bits of a SHA-256. Only a client could make requests of its own collide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest(u128);

impl Digest {
    /// Hashes each part with its length: parts that are divided in another way have another hash.
    fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let first = hash.first_chunk().expect("it has 32 bytes");
        Self(u128::from_be_bytes(*first))
    }

    /// Databases keep this hash. If it changed, no repeated request would be recognized.
    fn of_request(action: &Action) -> Self {
        let method = action.name().as_bytes();
        match action {
            Action::Claim | Action::Read => Self::of_parts(&[method]),
            Action::Write { content, condition } => {
                let content_type = content.content_type.as_bytes();
                let condition = condition_text(condition);
                Self::of_parts(&[method, condition.as_bytes(), content_type, &content.bytes])
            }
            Action::Delete { condition } => {
                Self::of_parts(&[method, condition_text(condition).as_bytes()])
            }
        }
    }

    fn of_fence(fence: &Fence) -> Self {
        Self::of_parts(&[&fence.token.as_u64().to_be_bytes(), fence.holder.as_str().as_bytes()])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Digest {
    type Err = InvalidAnswers;

    fn from_str(text: &str) -> Result<Self, InvalidAnswers> {
        u128::from_str_radix(text, 16).map(Self).map_err(|_| InvalidAnswers)
    }
}

fn condition_text(Condition { if_match, if_none_match }: &Condition) -> String {
    let versions = |versions: &Option<Versions>| match versions {
        None => "-".to_owned(),
        Some(Versions::Any) => "*".to_owned(),
        Some(Versions::Listed(versions)) => format!("{versions:?}"),
    };
    format!("{} {}", versions(if_match), versions(if_none_match))
}

/// The last answers to numbered writes under one token and holder, in the order of their numbers.
///
/// It displays as the text that a database keeps, and is parsed from that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The token and holder that they were made under. A server that knows no sequences changes the
    /// fence and leaves the answers, which are void then.
    fence: Digest,
    kept: Vec<Kept>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    numbered: Numbered,
    answer: Answer,
    version: u64,
}

/// What a write was answered, except for the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Created,
    Replaced,
    Deleted,
    VersionMismatch,
}

/// What is known of a numbered write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is a new one.
    New,
    /// It was answered with this, or its number can't be used.
    Answered(Outcome),
}

impl Answers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// How many bytes they take beside the struct itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(self.kept.as_slice())
    }

    /// Returns what is known of a write under the fence.
    pub(crate) fn look_up(&self, fence: &Fence, numbered: Numbered) -> Known {
        let Numbered { sequence, .. } = numbered;
        let Some(highest) = self.highest(fence).filter(|highest| *highest >= sequence) else {
            return Known::New;
        };
        let kept = self.kept.iter().find(|kept| kept.numbered.sequence == sequence);
        Known::Answered(match kept {
            Some(kept) if kept.numbered == numbered => kept.outcome(),
            Some(_) => Outcome::SequenceReused { sequence },
            // The highest numbers are kept. So a number among them that is missing was never used.
            None => {
                let lowest = self.kept.first().map(|kept| kept.numbered.sequence);
                let may_be_forgotten = self.len() == KEPT && Some(sequence) < lowest;
                Outcome::SequenceTooOld { sequence, highest, may_be_forgotten }
            }
        })
    }

    /// Keeps the answer to a new write under the fence, and forgets the oldest one if there are too
    /// many. Answers under another fence are forgotten.
    pub(crate) fn keep(&mut self, fence: &Fence, numbered: Numbered, outcome: &Outcome) {
        if self.highest(fence).is_none() {
            *self = Self { fence: Digest::of_fence(fence), kept: Vec::new() };
        }
        let (answer, version) = match *outcome {
            Outcome::Written { version, created: true } => (Answer::Created, version),
            Outcome::Written { version, created: false } => (Answer::Replaced, version),
            Outcome::Deleted { version } => (Answer::Deleted, version),
            Outcome::VersionMismatch { version } => (Answer::VersionMismatch, version),
            _ => unreachable!("{outcome:?} is not the outcome of a write"),
        };
        if self.kept.len() == KEPT {
            self.kept.remove(0);
        }
        self.kept.push(Kept { numbered, answer, version });
    }

    /// The highest number of a write under the fence.
    fn highest(&self, fence: &Fence) -> Option<Sequence> {
        let last = self.kept.last().filter(|_| self.fence == Digest::of_fence(fence));
        last.map(|last| last.numbered.sequence)
    }
}

impl Kept {
    fn outcome(&self) -> Outcome {
        let version = self.version;
        match self.answer {
            Answer::Created => Outcome::Written { version, created: true },
            Answer::Replaced => Outcome::Written { version, created: false },
            Answer::Deleted => Outcome::Deleted { version },
            Answer::VersionMismatch => Outcome::VersionMismatch { version },
        }
    }
}

/// The text is not that of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("they are not as a server writes them")]
pub struct InvalidAnswers;

const ANSWERS: [(Answer, &str); 4] = [
    (Answer::Created, "created"),
    (Answer::Replaced, "replaced"),
    (Answer::Deleted, "deleted"),
    (Answer::VersionMismatch, "version-mismatch"),
];

/// The hash of the fence, and for each answer the number, the answer, the version and the hash of
/// the request: `HASH 7:created:1:HASH 8:deleted:2:HASH`.
impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fence.fmt(f)?;
        for Kept { numbered: Numbered { sequence, request }, answer, version } in &self.kept {
            let (_, answer) =
                ANSWERS.iter().find(|(known, _)| known == answer).expect("all are there");
            write!(f, " {sequence}:{answer}:{version}:{request}")?;
        }
        Ok(())
    }
}

impl FromStr for Answers {
    type Err = InvalidAnswers;

    fn from_str(text: &str) -> Result<Self, InvalidAnswers> {
        let mut words = text.split(' ');
        let fence = words.next().ok_or(InvalidAnswers)?.parse()?;
        let kept: Vec<Kept> = words.map(str::parse).collect::<Result<_, _>>()?;
        let is_rising = kept.is_sorted_by(|a, b| a.numbered.sequence < b.numbered.sequence);
        let is_kept = is_rising && (1..=KEPT).contains(&kept.len());
        let answers = Self { fence, kept };
        // The text is compared with the stored one, so it must be the same.
        if is_kept && answers.to_string() == text { Ok(answers) } else { Err(InvalidAnswers) }
    }
}

impl FromStr for Kept {
    type Err = InvalidAnswers;

    fn from_str(text: &str) -> Result<Self, InvalidAnswers> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(InvalidAnswers);
        let sequence = next()?.parse().map_err(|_| InvalidAnswers)?;
        let word = next()?;
        let (answer, _) = ANSWERS.iter().find(|(_, known)| *known == word).ok_or(InvalidAnswers)?;
        let version = next()?.parse().map_err(|_| InvalidAnswers)?;
        let request = next()?.parse()?;
        match parts.next() {
            None => Ok(Self { numbered: Numbered { sequence, request }, answer: *answer, version }),
            Some(_) => Err(InvalidAnswers),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

    use super::*;
    use crate::{
        config::Enforcement,
        operation::{Content, Decided, Operation},
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
        let first =
            "27c480d0fac2e742a19bf7729700be6b 1:created:1:89d319d0fb753f78d8041c0d7f6672aa ";
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
}
