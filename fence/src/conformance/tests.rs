//! The pure rule passes the suite. Subjects with a flaw don't.

use std::collections::HashMap;

use async_trait::async_trait;

use super::*;
use crate::{
    rejection::{Rejection, RejectionReason},
    rule::{Decision, decide},
};

/// A datastore in memory that follows the rule, except for its flaw.
struct Memory {
    flaw: Flaw,
    fences: HashMap<String, Fence>,
    values: HashMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    ChecksNothing,
    ComparesTheTokenAlone,
    LetsTheLaterHolderTakeOver,
    ForgetsTheFenceWithTheValue,
    ReportsTheOfferedTokenAsHighest,
    ComparesNamesWithoutCase,
    TrimsNames,
    CutsNames,
    ComparesHoldersWithoutCase,
    CutsHolders,
    TakesTheEmptyHolderForAny,
    ComparesTokensAsText,
    ComparesTokensAsFloats,
    WritesBeforeItChecks,
}

impl Memory {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, fences: HashMap::new(), values: HashMap::new() }
    }

    fn key(&self, resource: &ResourceName) -> String {
        let name = resource.as_str();
        match self.flaw {
            Flaw::ComparesNamesWithoutCase => name.to_lowercase(),
            Flaw::TrimsNames => name.trim_end().to_owned(),
            Flaw::CutsNames => name.chars().take(255).collect(),
            _ => name.to_owned(),
        }
    }

    fn offer(&mut self, resource: &ResourceName, offered: &Fence) -> Outcome {
        let key = self.key(resource);
        let Some(fence) = self.fences.get(&key).cloned() else {
            self.fences.insert(key, offered.clone());
            return Outcome::Accepted;
        };
        let highest_token = match self.flaw {
            Flaw::ReportsTheOfferedTokenAsHighest => offered.token,
            _ => fence.token,
        };
        let reason = match self.decide(&fence, offered) {
            Decision::Advance | Decision::Accept => {
                self.fences.insert(key, offered.clone());
                return Outcome::Accepted;
            }
            Decision::Stale => RejectionReason::Stale,
            Decision::HolderConflict => RejectionReason::HolderConflict,
        };
        Outcome::Rejected(Rejection { reason, token: offered.token, highest_token })
    }

    fn decide(&self, fence: &Fence, offered: &Fence) -> Decision {
        let equal_holders = || Fence { token: fence.token, holder: offered.holder.clone() };
        let (seen, new) = (fence.holder.as_str(), offered.holder.as_str());
        let [seen_token, new_token] = [fence.token, offered.token].map(Token::as_u64);
        let decision = decide(Some(fence), offered);
        #[expect(clippy::cast_precision_loss, reason = "the loss is the flaw")]
        let as_float = |token: u64| token as f32;
        match self.flaw {
            Flaw::ChecksNothing => Decision::Advance,
            Flaw::ComparesTheTokenAlone => decide(Some(&equal_holders()), offered),
            Flaw::LetsTheLaterHolderTakeOver if decision == Decision::HolderConflict => {
                Decision::Advance
            }
            Flaw::ComparesHoldersWithoutCase if seen.eq_ignore_ascii_case(new) => {
                decide(Some(&equal_holders()), offered)
            }
            Flaw::CutsHolders if seen.get(..32) == new.get(..32) && seen.len() > 32 => {
                decide(Some(&equal_holders()), offered)
            }
            Flaw::TakesTheEmptyHolderForAny if new.is_empty() => {
                decide(Some(&equal_holders()), offered)
            }
            Flaw::ComparesTokensAsText if new_token.to_string() < seen_token.to_string() => {
                Decision::Stale
            }
            Flaw::ComparesTokensAsFloats if as_float(new_token) == as_float(seen_token) => {
                Decision::Accept
            }
            _ => decision,
        }
    }
}

#[async_trait]
impl Subject for Memory {
    async fn claim(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        Ok(self.offer(resource, offered))
    }

    async fn write(&mut self, resource: &ResourceName, offered: &Fence, value: &str) -> Answer {
        let key = self.key(resource);
        if self.flaw == Flaw::WritesBeforeItChecks {
            self.values.insert(key.clone(), value.to_owned());
        }
        let decided = self.offer(resource, offered);
        if decided == Outcome::Accepted {
            self.values.insert(key, value.to_owned());
        }
        Ok(decided)
    }

    async fn delete(&mut self, resource: &ResourceName, offered: &Fence) -> Answer {
        let key = self.key(resource);
        let decided = self.offer(resource, offered);
        if decided == Outcome::Accepted {
            self.values.remove(&key);
            if self.flaw == Flaw::ForgetsTheFenceWithTheValue {
                self.fences.remove(&key);
            }
        }
        Ok(decided)
    }

    async fn read(&mut self, resource: &ResourceName) -> Result<Option<String>, Failure> {
        Ok(self.values.get(&self.key(resource)).cloned())
    }
}

#[tokio::test]
async fn the_pure_rule_conforms() {
    check(&mut Memory::new(Flaw::None)).await.unwrap();
}

#[tokio::test]
async fn each_flaw_is_found() {
    let flaws = [
        Flaw::ChecksNothing,
        Flaw::ComparesTheTokenAlone,
        Flaw::LetsTheLaterHolderTakeOver,
        Flaw::ForgetsTheFenceWithTheValue,
        Flaw::ReportsTheOfferedTokenAsHighest,
        Flaw::ComparesNamesWithoutCase,
        Flaw::TrimsNames,
        Flaw::CutsNames,
        Flaw::ComparesHoldersWithoutCase,
        Flaw::CutsHolders,
        Flaw::TakesTheEmptyHolderForAny,
        Flaw::ComparesTokensAsText,
        Flaw::ComparesTokensAsFloats,
        Flaw::WritesBeforeItChecks,
    ];
    for flaw in flaws {
        assert!(check(&mut Memory::new(flaw)).await.is_err(), "{flaw:?}");
    }
}
