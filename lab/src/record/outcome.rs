//! How a world ended: facts with names, and what they must be.

use std::fmt;

use fence::Token;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// How a run ended in each of its worlds, by name, in the order in which they were replayed.
pub type Outcomes = IndexMap<String, Outcome>;

/// How a run ended in one world: facts by their names, which are in snake case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome(IndexMap<String, Fact>);

/// What a server or a client reported in the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// There is none.
    Nothing,
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// What a fact must be for a run to show what its scenario claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// None.
    Nothing,
    /// This number.
    Number(u64),
    /// This text.
    Text(&'static str),
    /// This number or more.
    AtLeast(u64),
    /// This number or less.
    AtMost(u64),
}

impl Outcome {
    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, name: &str, fact: impl Into<Fact>) -> Self {
        self.0.insert(name.to_owned(), fact.into());
        self
    }

    /// A fact that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.0.get(name) {
            Some(Fact::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Whether every expected fact is here, and as expected.
    pub fn meets(&self, expected: &[(&str, Expected)]) -> bool {
        let met = |(name, expected): &(&str, Expected)| {
            self.0.get(*name).is_some_and(|fact| expected.is_met_by(fact))
        };
        expected.iter().all(met)
    }
}

impl Expected {
    fn is_met_by(self, fact: &Fact) -> bool {
        match (self, fact) {
            (Self::Nothing, Fact::Nothing) => true,
            (Self::Number(expected), Fact::Number(number)) => *number == expected,
            (Self::Text(expected), Fact::Text(text)) => text == expected,
            (Self::AtLeast(least), Fact::Number(number)) => *number >= least,
            (Self::AtMost(most), Fact::Number(number)) => *number <= most,
            _ => false,
        }
    }
}

#[cfg(test)]
impl Expected {
    /// Whether no fact can meet both.
    pub(crate) fn excludes(self, other: Self) -> bool {
        let range = |expected| match expected {
            Self::Number(number) => Some((number, number)),
            Self::AtLeast(least) => Some((least, u64::MAX)),
            Self::AtMost(most) => Some((0, most)),
            Self::Nothing | Self::Text(_) => None,
        };
        match (range(self), range(other)) {
            (Some((least, most)), Some((other_least, other_most))) => {
                most < other_least || other_most < least
            }
            _ => self != other,
        }
    }
}

/// In words: `stale writes accepted: 1; updates lost: 0`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, fact)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {fact}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<u64> for Fact {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Token> for Fact {
    fn from(token: Token) -> Self {
        Self::Number(token.as_u64())
    }
}

impl<T: Into<Fact>> From<Option<T>> for Fact {
    fn from(fact: Option<T>) -> Self {
        fact.map_or(Self::Nothing, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_meets_expectations_only_if_each_expected_fact_does() {
        let outcome = Outcome::default().with("value", "a".to_owned()).with("sold", 20);
        assert!(outcome.meets(&[("value", Expected::Text("a")), ("sold", Expected::Number(20))]));
        assert!(outcome.meets(&[("sold", Expected::AtLeast(20)), ("sold", Expected::AtMost(20))]));
        for unmet in [
            ("value", Expected::Text("b")),
            ("value", Expected::Nothing),
            ("value", Expected::AtLeast(0)),
            ("sold", Expected::Number(21)),
            ("sold", Expected::AtLeast(21)),
            ("sold", Expected::AtMost(19)),
            ("left", Expected::Nothing),
        ] {
            assert!(!outcome.meets(&[("sold", Expected::Number(20)), unmet]), "{unmet:?}");
        }
    }

    #[test]
    fn expectations_exclude_each_other_only_if_no_fact_meets_both() {
        use Expected::{AtLeast, AtMost, Nothing, Number, Text};
        let excluding = [
            (Number(1), Number(2)),
            (AtLeast(2), Number(1)),
            (AtMost(1), AtLeast(2)),
            (Nothing, AtMost(5)),
            (Text("a"), Text("b")),
        ];
        let agreeing = [
            (Number(1), Number(1)),
            (AtLeast(2), Number(2)),
            (AtMost(2), AtLeast(2)),
            (Nothing, Nothing),
            (Text("a"), Text("a")),
        ];
        for (one, other) in excluding {
            assert!(one.excludes(other) && other.excludes(one), "{one:?} {other:?}");
        }
        for (one, other) in agreeing {
            assert!(!one.excludes(other) && !other.excludes(one), "{one:?} {other:?}");
        }
    }
}
