//! The state of a resource, and how an operation changes it.

use fence::{Decision, Fence, Holder, Rejection, RejectionReason, Token, decide};

use crate::{
    config::Enforcement,
    operation::{Action, Decided, Operation, Outcome, Value},
    sequence::{Answers, Known},
};

/// How far a token may be above the fence, whatever the ceiling is: a lock whose fence is above the
/// ceiling must go on growing, and a reissue takes a token that is just above the fence.
const STEP_ABOVE_FENCE: u64 = 1000;

/// The state of a resource at one moment.
///
/// The default is the state of a resource that was never used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The fence; `None` if no token was ever offered.
    pub fence: Option<Fence>,
    /// The database's common fence: every token up to it is stale, unless the resource's fence is as high.
    /// `None` if it was never raised.
    pub common_fence: Option<Token>,
    /// The number of accepted writes and deletes.
    pub version: u64,
    /// The value.
    pub value: StoredValue,
    /// The answers to the last writes that may be sent again.
    pub answers: Answers,
}

/// A resource's value, as far as it has been loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoredValue {
    /// There is no value.
    #[default]
    Absent,
    /// There is a value, and nothing else is known of it: the row is a guess.
    Unknown,
    /// There is a value, and it was not loaded.
    NotLoaded(Described),
    /// There is this value.
    Present(Value),
}

/// What is known of a value that was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its `Content-Type`. `None` if it is malformed: the value can't be read, but be replaced.
    pub content_type: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// The token and holder that the write offered, if it offered any.
    pub written_with: Option<Fence>,
}

impl Row {
    /// Applies an operation: the rule decides on its offer, and an accepted operation takes effect.
    /// A token above the ceiling is rejected, whatever the enforcement.
    ///
    /// A read yields as much of the value as was loaded.
    pub(crate) fn apply(&mut self, operation: &Operation, enforcement: Enforcement) -> Decided {
        let ceiling = self.ceiling(operation.ceiling);
        if let Some(Fence { token, .. }) = operation.offered
            && token > ceiling
        {
            return Decided { outcome: Outcome::TokenTooHigh { token, ceiling }, overruled: None };
        }
        let rejection = self.claim(operation.offered.as_ref()).err();
        if let Some(rejection) = rejection
            && enforcement == Enforcement::Enforce
        {
            return Decided { outcome: Outcome::Rejected(rejection), overruled: None };
        }
        let outcome = match rejection {
            None => self.act_once(operation),
            // The fence is another's, and so are the answers.
            Some(_) => self.act(operation),
        };
        Decided { outcome, overruled: rejection }
    }

    /// The highest token that the rule knows: the fence's, or a higher common fence's. `None` if there
    /// is neither.
    pub(crate) fn highest_token(&self) -> Option<Token> {
        self.common_fence.max(self.fence_token())
    }

    /// The highest token that a client with this ceiling of its own may offer now.
    fn ceiling(&self, of_client: Token) -> Token {
        let highest = self.highest_token().map_or(0, Token::as_u64);
        Token::new(highest + STEP_ABOVE_FENCE).unwrap_or(Token::MAX).max(of_client)
    }

    /// The holder of the highest token. A common fence has none.
    pub(crate) fn holder(&self) -> Option<&Holder> {
        self.fence.as_ref().filter(|_| !self.is_below_common_fence()).map(|fence| &fence.holder)
    }

    fn fence_token(&self) -> Option<Token> {
        self.fence.as_ref().map(|fence| fence.token)
    }

    fn is_below_common_fence(&self) -> bool {
        self.fence_token() < self.common_fence
    }

    /// The rule's verdict on an offer. A common fence above the resource's fence replaces it. It belongs
    /// to nobody, so that its own token is stale, too.
    fn decide(&self, offered: &Fence) -> Decision {
        if !self.is_below_common_fence() {
            decide(self.fence.as_ref(), offered)
        } else if Some(offered.token) > self.common_fence {
            Decision::Advance
        } else {
            Decision::Stale
        }
    }

    /// The version of the value; `None` if there is no value.
    pub(crate) fn value_version(&self) -> Option<u64> {
        (self.value != StoredValue::Absent).then_some(self.version)
    }

    /// Claims: advances the fence to the offer, unless the rule rejects it. Without an offer, there
    /// is nothing to claim.
    fn claim(&mut self, offered: Option<&Fence>) -> Result<(), Rejection> {
        let Some(offered) = offered else {
            return Ok(());
        };
        let reason = match self.decide(offered) {
            Decision::Advance => {
                self.fence = Some(offered.clone());
                self.answers = Answers::default();
                return Ok(());
            }
            Decision::Accept => return Ok(()),
            Decision::Stale => RejectionReason::Stale,
            Decision::HolderConflict => RejectionReason::HolderConflict,
        };
        let highest_token = self.highest_token().expect("only a fence rejects an offer");
        Err(Rejection { reason, token: offered.token, highest_token })
    }

    /// Acts, unless the operation is a write that was answered before.
    fn act_once(&mut self, operation: &Operation) -> Outcome {
        let (Some(fence), Some(numbered)) = (&operation.offered, operation.numbered) else {
            return self.act(operation);
        };
        match self.answers.look_up(fence, numbered) {
            Known::Answered(outcome) => outcome,
            Known::New => {
                let outcome = self.act(operation);
                self.answers.keep(fence, numbered, &outcome);
                outcome
            }
        }
    }

    fn act(&mut self, operation: &Operation) -> Outcome {
        match &operation.action {
            Action::Claim => Outcome::Claimed { version: self.version },
            Action::Read => Outcome::Read { version: self.version, value: self.value.clone() },
            Action::Write { condition, .. } | Action::Delete { condition }
                if !condition.is_met_by(self.value_version()) =>
            {
                Outcome::VersionMismatch { version: self.version }
            }
            Action::Write { content, .. } => {
                let created = self.value == StoredValue::Absent;
                self.version += 1;
                self.value = StoredValue::Present(Value {
                    content: content.clone(),
                    written_with: operation.offered.clone(),
                });
                Outcome::Written { version: self.version, created }
            }
            Action::Delete { .. } => {
                self.version += 1;
                self.value = StoredValue::Absent;
                Outcome::Deleted { version: self.version }
            }
        }
    }
}

#[cfg(test)]
mod tests;
