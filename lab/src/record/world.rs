//! The worlds that a scenario is replayed in.

use serde::Serialize;

use super::outcome::Expected;

/// A world that a scenario is replayed in. A record contains only its name.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct World {
    /// Its name in the record.
    pub name: &'static str,
    /// How it differs from the scenario's other worlds. The part before the colon is its short
    /// name.
    pub title: &'static str,
    /// Whether the scenario's danger strikes in it.
    pub danger: Danger,
    /// What its storage checks.
    pub checks: Checks,
    /// How it must end to show what the scenario claims.
    #[serde(skip)]
    pub end: &'static [(&'static str, Expected)],
}

/// Whether a scenario's danger strikes in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Danger {
    /// It strikes: this is the unsafe twin.
    Strikes,
    /// It is averted.
    Averted,
}

/// What the storage of a world checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checks {
    /// Nothing, or there is no storage.
    Nothing,
    /// The token of each write.
    Tokens,
}
