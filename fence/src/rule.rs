//! The rule: what a storage does with an offered token and holder.
//!
//! | offered against the fence | decision | the fence afterwards |
//! |---|---|---|
//! | no fence yet | [`Advance`](Decision::Advance) | the offered |
//! | token higher | [`Advance`](Decision::Advance) | the offered |
//! | token equal, holder equal | [`Accept`](Decision::Accept) | unchanged |
//! | token equal, holder different | [`HolderConflict`](Decision::HolderConflict) | unchanged |
//! | token lower | [`Stale`](Decision::Stale) | unchanged |
//!
//! The idea of the token is Martin Kleppmann's ("How to do distributed locking", 2016). Binding it
//! to its holder is what keeps one token from serving two owners when a lock service lost its
//! counter and issued a token twice.

use std::cmp::Ordering;

use crate::{Holder, Token};

/// A resource's high-water mark: the highest token seen, and the holder it belongs to.
///
/// What a client offers has the same shape: it is the fence that the resource would have if the
/// offer were accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The highest token seen.
    pub token: Token,
    /// Whom that token belongs to.
    pub holder: Holder,
}

/// What the rule says of an offered token and holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Accepted: the offered becomes the fence.
    Advance,
    /// Accepted: the fence already is the offered.
    Accept,
    /// Refused: the fence's token belongs to another holder. A counter went backwards and issued
    /// the token twice.
    HolderConflict,
    /// Refused: the offered token is below the fence.
    Stale,
}

/// Decides on an offer against the fence, or against no fence yet.
#[must_use]
pub fn decide(fence: Option<&Fence>, offered: &Fence) -> Decision {
    let Some(fence) = fence else {
        return Decision::Advance;
    };
    match offered.token.cmp(&fence.token) {
        Ordering::Greater => Decision::Advance,
        Ordering::Equal if offered.holder == fence.holder => Decision::Accept,
        Ordering::Equal => Decision::HolderConflict,
        Ordering::Less => Decision::Stale,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

    use super::*;

    type Rule = fn(Option<&Fence>, &Fence) -> Decision;

    /// Offers whose few tokens and holders meet often, in any order.
    fn offers() -> impl Strategy<Value = Vec<Fence>> {
        let offer = (1..6_u64, prop_oneof!["", "a", "b"]).prop_map(|(token, holder)| Fence {
            token: Token::new(token).unwrap(),
            holder: holder.parse().unwrap(),
        });
        vec(offer, 0..24)
    }

    /// Runs the offers one after the other and checks, from outside the rule, what it promises.
    fn check(rule: Rule, offers: Vec<Fence>) -> Result<(), TestCaseError> {
        let mut fence: Option<Fence> = None;
        let mut owners: HashMap<Token, Holder> = HashMap::new();
        for offered in offers {
            let before = fence.clone();
            let highest = before.as_ref().map(|fence| fence.token);
            let accepted = match rule(before.as_ref(), &offered) {
                Decision::Advance => {
                    fence = Some(offered.clone());
                    true
                }
                Decision::Accept => true,
                Decision::HolderConflict => {
                    prop_assert_eq!(highest, Some(offered.token), "a conflict is about one token");
                    false
                }
                Decision::Stale => {
                    prop_assert!(highest > Some(offered.token), "what is stale is below the fence");
                    false
                }
            };
            let token = fence.as_ref().map(|fence| fence.token);
            prop_assert!(token >= highest, "the fence went down");
            if accepted {
                prop_assert_eq!(fence.as_ref(), Some(&offered), "accepted, but not the fence");
                let owner = owners.entry(offered.token).or_insert_with(|| offered.holder.clone());
                prop_assert_eq!(&*owner, &offered.holder, "two holders at one token");
            } else {
                prop_assert_eq!(&fence, &before, "a refused offer changed something");
            }
        }
        Ok(())
    }

    fn run(rule: Rule) -> Result<(), impl std::fmt::Display> {
        TestRunner::default().run(&offers(), |offers| check(rule, offers))
    }

    #[test]
    fn fence_never_goes_down_and_a_token_serves_one_holder() {
        run(decide).unwrap_or_else(|failure| panic!("{failure}"));
    }

    #[test]
    fn wrong_rules_fail_the_same_check() {
        let token_alone: Rule = |fence, offered| match decide(fence, offered) {
            Decision::HolderConflict => Decision::Accept,
            decision => decision,
        };
        let takes_over: Rule = |fence, offered| match decide(fence, offered) {
            Decision::HolderConflict => Decision::Advance,
            decision => decision,
        };
        let unfenced: Rule = |_, _| Decision::Advance;
        let refuses_its_own: Rule = |fence, offered| match decide(fence, offered) {
            Decision::Accept => Decision::Stale,
            decision => decision,
        };
        for wrong in [token_alone, takes_over, unfenced, refuses_its_own] {
            assert!(run(wrong).is_err());
        }
    }

    #[test]
    fn every_row_of_the_table() {
        let fence = |token, holder: &str| Fence {
            token: Token::new(token).unwrap(),
            holder: holder.parse().unwrap(),
        };
        let seen = fence(34, "b");
        assert_eq!(decide(None, &fence(1, "")), Decision::Advance);
        assert_eq!(decide(Some(&seen), &fence(35, "a")), Decision::Advance);
        assert_eq!(decide(Some(&seen), &fence(34, "b")), Decision::Accept);
        assert_eq!(decide(Some(&seen), &fence(34, "a")), Decision::HolderConflict);
        assert_eq!(decide(Some(&seen), &fence(34, "")), Decision::HolderConflict);
        assert_eq!(decide(Some(&seen), &fence(33, "b")), Decision::Stale);
        assert_eq!(decide(Some(&fence(34, "")), &fence(34, "")), Decision::Accept);
    }
}
