//! The answers that are kept for writes that may be sent again.

use fence::Fence;

use super::{Digest, Numbered, Sequence};
use crate::operation::Outcome;

/// How many answers are kept for a resource.
pub(super) const KEPT: usize = 16;

/// The last answers to numbered writes under one token and holder, in the order of their numbers.
///
/// It displays as the text that a database keeps, and is parsed from that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The token and holder that they were made under. A server that knows no sequences changes the
    /// fence and leaves the answers, which are void then.
    pub(super) fence: Digest,
    pub(super) kept: Vec<Kept>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) numbered: Numbered,
    pub(super) answer: Answer,
    pub(super) version: u64,
}

/// What a write was answered, except for the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
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
