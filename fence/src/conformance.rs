//! The suite that every datastore with a fence has to pass.
//!
//! A datastore takes part by one implementation of [`Subject`]; [`check`] then tries on it every row
//! of the rule's table, every sequence of three offers, and the tokens, holders and names with which
//! hand-written checks go wrong. What it expects comes from the pure rule, [`decide`].

use std::fmt::{self, Display};

use async_trait::async_trait;

use crate::{Decision, Fence, Holder, Refusal, RefusalReason, ResourceName, Token, decide};

/// A datastore with a fence, which has to be empty at first.
#[async_trait]
pub trait Subject: Send {
    /// Claims a resource.
    async fn claim(&mut self, resource: &ResourceName, offered: &Fence) -> Answer;

    /// Sets the resource's value.
    async fn write(&mut self, resource: &ResourceName, offered: &Fence, value: &str) -> Answer;

    /// Removes the resource's value, if there is one.
    async fn delete(&mut self, resource: &ResourceName, offered: &Fence) -> Answer;

    /// The resource's value.
    async fn read(&mut self, resource: &ResourceName) -> Result<Option<String>, Failure>;
}

/// Whether an offer was accepted; or, outside, that there was no answer.
pub type Answer = Result<Result<(), Refusal>, Failure>;

/// Why a datastore gave no answer.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a datastore did otherwise than the rule demands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NonConformance {
    /// It decided otherwise, did something else, or told another token.
    #[error("{0}")]
    Otherwise(String),
    /// It gave no answer.
    #[error("{step}: no answer")]
    NoAnswer {
        /// What it was asked.
        step: String,
        /// Why it gave none.
        #[source]
        failure: Failure,
    },
}

/// Checks that a datastore follows the rule.
///
/// # Errors
/// The first thing that it did otherwise.
pub async fn check(subject: &mut impl Subject) -> Result<(), NonConformance> {
    every_sequence_of_three_offers(subject).await?;
    tokens_are_compared_exactly(subject).await?;
    holders_are_compared_exactly(subject).await?;
    names_are_told_apart(subject).await?;
    deletes_keep_the_fence(subject).await
}

/// Among them is every row of the rule's table, each by a claim, a write and a delete.
async fn every_sequence_of_three_offers(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let offers: Vec<_> =
        (1..=3).flat_map(|token| ["", "a", "b"].map(|holder| offer(token, holder))).collect();
    for (first, first_offer) in offers.iter().enumerate() {
        for (second, second_offer) in offers.iter().enumerate() {
            for (third, third_offer) in offers.iter().enumerate() {
                let mut resource = Resource::named(&format!("sequence/{first}/{second}/{third}"));
                let steps = [first_offer, second_offer, third_offer].into_iter().enumerate();
                for (step, offered) in steps {
                    // Each offer meets each action at each step, in one sequence or another.
                    let action =
                        [Action::Claim, Action::Write, Action::Delete][(first + second + step) % 3];
                    resource.expect(subject, action, offered).await?;
                }
            }
        }
    }
    Ok(())
}

/// Of what a float or 32 bits can't hold, what Lua prints with an exponent, and what text would
/// order otherwise.
async fn tokens_are_compared_exactly(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let highest = Token::MAX.as_u64();
    let tokens = [
        9,
        10,
        99,
        100,
        (1 << 24) + 1,
        (1 << 31) + 1,
        (1 << 32) + 1,
        99_999_999_999_999,
        100_000_000_000_000,
        100_000_000_000_001,
        highest - 1,
        highest,
    ];
    let mut resource = Resource::named("tokens");
    for token in tokens {
        resource.expect(subject, Action::Write, &offer(token, "a")).await?;
        resource.expect(subject, Action::Write, &offer(token - 1, "a")).await?;
        resource.expect(subject, Action::Claim, &offer(token, "b")).await?;
        resource.expect(subject, Action::Delete, &offer(token, "a")).await?;
    }
    Ok(())
}

/// Among them the longest, ones that differ in their case or in their last character only, and ones
/// that a database or a language might take for another or for none.
async fn holders_are_compared_exactly(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let longest = "~".repeat(Holder::MAX_BYTES);
    let nearly = format!("{}!", "~".repeat(Holder::MAX_BYTES - 1));
    let holders = [
        "", "a", "A", "aa", "0", "00", "1", "1.0", "1e0", "null", "NULL", "false", "%", "_", "'",
        "''", "\"", "\\", "\\\\", "--", "{}", "$1", "?", &longest, &nearly,
    ];
    for (place, owner) in holders.iter().enumerate() {
        let mut resource = Resource::named(&format!("holders/{place}"));
        resource.expect(subject, Action::Claim, &offer(34, owner)).await?;
        for other in holders {
            resource.expect(subject, Action::Write, &offer(34, other)).await?;
        }
    }
    Ok(())
}

/// Names that a collation, a pattern, a trim or a cut might take for one.
async fn names_are_told_apart(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let longest = "x".repeat(ResourceName::MAX_BYTES);
    let nearly = format!("{}y", "x".repeat(ResourceName::MAX_BYTES - 1));
    let widest = "🐢".repeat(ResourceName::MAX_BYTES / 4);
    let names = [
        "a", "A", "a ", " a", "ａ", "á", "a\u{301}", "ss", "ß", "i", "I", "ı", "İ", "a/b", "a%2Fb",
        "a_b", "a%b", "a*b", "a'b", "a\"b", "a\\b", "a{b", "a}b", "{a}", "a;--", "$1", "?", "...",
        "null", "1", "01", "1.0", "żółw", "🐢", &longest, &nearly, &widest,
    ];
    let mut resources: Vec<_> = names.iter().map(|name| Resource::named(name)).collect();
    for (token, resource) in (10..).zip(&mut resources) {
        resource.expect(subject, Action::Write, &offer(token, "a")).await?;
    }
    for resource in &mut resources {
        resource.expect(subject, Action::Claim, &offer(1, "a")).await?;
    }
    Ok(())
}

async fn deletes_keep_the_fence(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let mut resource = Resource::named("deletes");
    let steps = [
        (Action::Delete, 34),
        (Action::Write, 33),
        (Action::Write, 34),
        (Action::Delete, 35),
        (Action::Write, 34),
        (Action::Delete, 34),
        (Action::Claim, 34),
        (Action::Delete, 35),
        (Action::Write, 35),
    ];
    for (action, token) in steps {
        resource.expect(subject, action, &offer(token, "a")).await?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Claim,
    Write,
    Delete,
}

/// A resource as it has to be.
struct Resource {
    name: ResourceName,
    fence: Option<Fence>,
    value: Option<String>,
}

impl Resource {
    fn named(name: &str) -> Self {
        let name = name.parse().expect("the suite's names are names");
        Self { name, fence: None, value: None }
    }

    /// Does something to the resource, and compares what the datastore says and has with what the
    /// rule demands.
    async fn expect(
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

        if demanded.is_ok() {
            self.fence = Some(offered.clone());
            match action {
                Action::Claim => {}
                Action::Write => self.value = Some(value),
                Action::Delete => self.value = None,
            }
        }
        compare(&step, &subject.read(&self.name).await.map_err(no_answer)?, &self.value)
    }

    fn demanded(&self, offered: &Fence) -> Result<(), Refusal> {
        let reason = match decide(self.fence.as_ref(), offered) {
            Decision::Advance | Decision::Accept => return Ok(()),
            Decision::Stale => RefusalReason::Stale,
            Decision::HolderConflict => RefusalReason::HolderConflict,
        };
        let highest_token = self.fence.as_ref().expect("only a fence refuses").token;
        Err(Refusal { reason, token: offered.token, highest_token })
    }
}

fn compare<T: PartialEq + fmt::Debug>(
    step: impl Display,
    seen: &T,
    demanded: &T,
) -> Result<(), NonConformance> {
    if seen == demanded {
        return Ok(());
    }
    Err(NonConformance::Otherwise(format!("{step}: {seen:?}, and not {demanded:?}")))
}

fn offer(token: u64, holder: &str) -> Fence {
    Fence {
        token: Token::new(token).expect("the suite's tokens are tokens"),
        holder: holder.parse().expect("the suite's holders are holders"),
    }
}

#[cfg(test)]
mod tests;
