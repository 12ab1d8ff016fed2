//! One resource of the suite: the state that the rule demands, and how the datastore deviates from
//! it.

use std::fmt;

use super::subject::{Failure, Outcome, Subject};
use crate::{
    name::ResourceName,
    rejection::{Rejection, RejectionReason},
    rule::{Decision, Fence, decide},
};

/// How a datastore deviated from the rule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NonConformance {
    /// It decided, reported or stored something else than the rule demands.
    #[error("{step}: {seen}, instead of {demanded}")]
    Different {
        /// The request.
        step: String,
        /// The answer, or the value that was stored.
        seen: String,
        /// The answer or value that the rule demands.
        demanded: String,
    },
    /// It didn't answer.
    #[error("{step}: no answer")]
    NoAnswer {
        /// The request.
        step: String,
        /// Why it didn't answer.
        #[source]
        failure: Failure,
    },
}

/// What an offer asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Claim,
    Write,
    Delete,
}

/// A resource in the state that the rule demands.
pub(super) struct Resource {
    name: ResourceName,
    fence: Option<Fence>,
    value: Option<String>,
}

impl Resource {
    pub(super) fn new(name: &str) -> Self {
        let name = name.parse().expect("the suite's names are valid");
        Self { name, fence: None, value: None }
    }

    /// Sends one offer, and compares the datastore's answer and value with those that the rule
    /// demands.
    pub(super) async fn expect(
        &mut self,
        subject: &mut impl Subject,
        action: Action,
        offered: &Fence,
    ) -> Result<(), NonConformance> {
        let step = format!(
            "{action:?} of '{}' with token {} of holder '{}', against {}",
            self.name,
            offered.token,
            offered.holder.as_str(),
            self.fence.as_ref().map_or("no fence".to_owned(), |fence| format!(
                "token {} of holder '{}'",
                fence.token,
                fence.holder.as_str()
            )),
        );
        let no_answer = |failure| NonConformance::NoAnswer { step: step.clone(), failure };

        let value = format!("written with {} by '{}'", offered.token, offered.holder.as_str());
        let answer = match action {
            Action::Claim => subject.claim(&self.name, offered).await,
            Action::Write => subject.write(&self.name, offered, &value).await,
            Action::Delete => subject.delete(&self.name, offered).await,
        };
        let demanded = self.demanded(offered);
        compare(&step, &answer.map_err(no_answer)?, &demanded)?;

        if demanded == Outcome::Accepted {
            self.fence = Some(offered.clone());
            match action {
                Action::Claim => {}
                Action::Write => self.value = Some(value),
                Action::Delete => self.value = None,
            }
        }
        compare(&step, &subject.read(&self.name).await.map_err(no_answer)?, &self.value)
    }

    fn demanded(&self, offered: &Fence) -> Outcome {
        let reason = match decide(self.fence.as_ref(), offered) {
            Decision::Advance | Decision::Accept => return Outcome::Accepted,
            Decision::Stale => RejectionReason::Stale,
            Decision::HolderConflict => RejectionReason::HolderConflict,
        };
        let highest_token = self.fence.as_ref().expect("only a fence rejects").token;
        Outcome::Rejected(Rejection { reason, token: offered.token, highest_token })
    }
}

fn compare<T: PartialEq + fmt::Debug>(
    step: &str,
    seen: &T,
    demanded: &T,
) -> Result<(), NonConformance> {
    if seen == demanded {
        return Ok(());
    }
    Err(NonConformance::Different {
        step: step.to_owned(),
        seen: format!("{seen:?}"),
        demanded: format!("{demanded:?}"),
    })
}
