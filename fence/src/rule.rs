//! The rule: whether a storage accepts an offered token and holder.
//!
//! Martin Kleppmann described the token ("How to do distributed locking", 2016). Here it is bound
//! to its holder, too: a token serves one owner, even if a lock service lost its counter and issued
//! the token twice.

use std::cmp::Ordering;

use crate::{holder::Holder, token::Token};

/// A resource's high-water mark: the highest token seen, and the holder that it belongs to.
///
/// A client offers a token and a holder in the same form: the fence that the resource will have if
/// the rule accepts the offer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The highest token seen.
    pub token: Token,
    /// The holder that the token belongs to.
    pub holder: Holder,
}

/// The rule's verdict on an offered token and holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Accepted: the offered token and holder become the fence.
    Advance,
    /// Accepted: the fence already has this token and holder.
    Accept,
    /// Rejected: the fence's token belongs to another holder. A counter went backwards and issued
    /// the token twice.
    HolderConflict,
    /// Rejected: the offered token is below the fence.
    Stale,
}

/// Compares an offered token and holder with the fence, if there is one yet.
///
/// | offered, against the fence | decision | the fence afterwards |
/// |---|---|---|
/// | no fence yet | [`Advance`](Decision::Advance) | the offered token and holder |
/// | token higher | [`Advance`](Decision::Advance) | the offered token and holder |
/// | token equal, holder equal | [`Accept`](Decision::Accept) | unchanged |
/// | token equal, holder different | [`HolderConflict`](Decision::HolderConflict) | unchanged |
/// | token lower | [`Stale`](Decision::Stale) | unchanged |
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

    /// Offers in any order, with so few tokens and holders that equal ones meet often.
    fn offers() -> impl Strategy<Value = Vec<Fence>> {
        let offer = (1..6_u64, prop_oneof!["", "a", "b"]).prop_map(|(token, holder)| Fence {
            token: Token::new(token).unwrap(),
            holder: holder.parse().unwrap(),
        });
        vec(offer, 0..24)
    }

    /// Applies the rule to the offers in order, and checks its promises from outside.
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
                    prop_assert_eq!(
                        highest,
                        Some(offered.token),
                        "a conflict without equal tokens"
                    );
                    false
                }
                Decision::Stale => {
                    prop_assert!(highest > Some(offered.token), "stale, but not below the fence");
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
                prop_assert_eq!(&fence, &before, "a rejected offer changed something");
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
        let rejects_its_own: Rule = |fence, offered| match decide(fence, offered) {
            Decision::Accept => Decision::Stale,
            decision => decision,
        };
        for wrong in [token_alone, takes_over, unfenced, rejects_its_own] {
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
