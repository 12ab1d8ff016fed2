//! The suite that every datastore with a fence must pass.
//!
//! Implement [`Subject`] for the datastore, and pass it to [`check`]. The suite tries every row of
//! the rule's table, every sequence of three offers, and tokens, holders and names that trip
//! hand-written checks. It compares each answer with the pure rule, [`decide`](crate::decide).

mod resource;
mod subject;

use resource::{Action, Resource};

use crate::{holder::Holder, name::ResourceName, rule::Fence, token::Token};

pub use resource::NonConformance;
pub use subject::{Answer, Failure, Outcome, Subject};

/// Checks that a datastore follows the rule.
///
/// # Errors
/// The first deviation from the rule.
pub async fn check(subject: &mut impl Subject) -> Result<(), NonConformance> {
    every_sequence_of_three_offers(subject).await?;
    tokens_are_compared_exactly(subject).await?;
    holders_are_compared_exactly(subject).await?;
    names_are_compared_exactly(subject).await?;
    deletes_keep_the_fence(subject).await
}

/// The sequences cover every row of the rule's table, each with a claim, a write and a delete.
async fn every_sequence_of_three_offers(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let offers: Vec<_> =
        (1..=3).flat_map(|token| ["", "a", "b"].map(|holder| offer(token, holder))).collect();
    for (first, first_offer) in offers.iter().enumerate() {
        for (second, second_offer) in offers.iter().enumerate() {
            for (third, third_offer) in offers.iter().enumerate() {
                let mut resource = Resource::new(&format!("sequence/{first}/{second}/{third}"));
                let steps = [first_offer, second_offer, third_offer].into_iter().enumerate();
                for (step, offered) in steps {
                    // Over all sequences, each offer meets each action at each step.
                    let action =
                        [Action::Claim, Action::Write, Action::Delete][(first + second + step) % 3];
                    resource.expect(subject, action, offered).await?;
                }
            }
        }
    }
    Ok(())
}

/// The tokens are those that a float or 32 bits can't hold, that Lua prints with an exponent, and
/// that text orders differently.
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
    let mut resource = Resource::new("tokens");
    for token in tokens {
        resource.expect(subject, Action::Write, &offer(token, "a")).await?;
        resource.expect(subject, Action::Write, &offer(token - 1, "a")).await?;
        resource.expect(subject, Action::Claim, &offer(token, "b")).await?;
        resource.expect(subject, Action::Delete, &offer(token, "a")).await?;
    }
    Ok(())
}

/// The holders are the longest ones, and ones that differ only in case or in the last character.
/// Others might be confused with each other, or with no holder, by a database or a language.
async fn holders_are_compared_exactly(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let longest = "~".repeat(Holder::MAX_BYTES);
    let nearly = format!("{}!", "~".repeat(Holder::MAX_BYTES - 1));
    let holders = [
        "", "a", "A", "aa", "0", "00", "1", "1.0", "1e0", "null", "NULL", "false", "%", "_", "'",
        "''", "\"", "\\", "\\\\", "--", "{}", "$1", "?", &longest, &nearly,
    ];
    for (place, owner) in holders.iter().enumerate() {
        let mut resource = Resource::new(&format!("holders/{place}"));
        resource.expect(subject, Action::Claim, &offer(34, owner)).await?;
        for other in holders {
            resource.expect(subject, Action::Write, &offer(34, other)).await?;
        }
    }
    Ok(())
}

/// The names are those that a collation, a pattern, a trim or a truncation might confuse.
async fn names_are_compared_exactly(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let longest = "x".repeat(ResourceName::MAX_BYTES);
    let nearly = format!("{}y", "x".repeat(ResourceName::MAX_BYTES - 1));
    let widest = "🐢".repeat(ResourceName::MAX_BYTES / 4);
    let names = [
        "a", "A", "a ", " a", "ａ", "á", "a\u{301}", "ss", "ß", "i", "I", "ı", "İ", "a/b", "a%2Fb",
        "a_b", "a%b", "a*b", "a'b", "a\"b", "a\\b", "a{b", "a}b", "{a}", "a;--", "$1", "?", "...",
        "null", "1", "01", "1.0", "żółw", "🐢", &longest, &nearly, &widest,
    ];
    let mut resources: Vec<_> = names.iter().map(|name| Resource::new(name)).collect();
    for (token, resource) in (10..).zip(&mut resources) {
        resource.expect(subject, Action::Write, &offer(token, "a")).await?;
    }
    for resource in &mut resources {
        resource.expect(subject, Action::Claim, &offer(1, "a")).await?;
    }
    Ok(())
}

async fn deletes_keep_the_fence(subject: &mut impl Subject) -> Result<(), NonConformance> {
    let mut resource = Resource::new("deletes");
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

fn offer(token: u64, holder: &str) -> Fence {
    Fence {
        token: Token::new(token).expect("the suite's tokens are valid"),
        holder: holder.parse().expect("the suite's holders are valid"),
    }
}

#[cfg(test)]
mod tests;
