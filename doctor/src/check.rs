//! The result of a check.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::IntoDeserializer};

/// What a check says of a system, the worst last.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing is wrong.
    Ok,
    /// Something is wrong, but nothing that was acknowledged is in danger.
    Warning,
    /// The check could not see the fact.
    Unseen,
    /// What was acknowledged can be lost. A fence needs another system. A lock can be kept here only if a
    /// storage behind it checks token and holder: a token may be issued twice.
    UnfitForFence,
    /// Neither a lock nor a fence can be kept here.
    Unfit,
}

impl Verdict {
    /// The exit code of a command whose worst verdict this is.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok | Self::Warning => 0,
            Self::Unfit => 1,
            Self::Unseen => 3,
            Self::UnfitForFence => 4,
        }
    }
}

impl FromStr for Verdict {
    type Err = serde::de::value::Error;

    /// Parses the word that JSON and `doctor.sql` of PostgreSQL have.
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::deserialize(word.into_deserializer())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Unseen => "UNSEEN",
            Self::UnfitForFence => "UNFIT FOR FENCE",
            Self::Unfit => "UNFIT",
        })
    }
}

/// What a check has found.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The fact, where the system has a name for it: that name.
    pub name: Cow<'static, str>,
    /// What it means.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What is in danger; `None` if nothing is.
    pub why: Option<Cow<'static, str>>,
    /// What to do; `None` if nothing needs to be done.
    pub cure: Option<Cure>,
}

/// What to do about something that is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Cure {
    /// What to do, in words.
    pub advice: Cow<'static, str>,
    /// Commands for it, in the system's own language. They take effect at once.
    pub commands: Vec<String>,
}

impl Check {
    /// Nothing is wrong, unless a condition is added that does not hold.
    pub fn ok(name: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Ok, found: found.into(), why: None, cure: None }
    }

    /// The verdict, what is in danger and what to do, if this does not hold. The first such condition counts.
    #[must_use]
    pub fn unless(
        self,
        holds: bool,
        verdict: Verdict,
        why: impl Into<Cow<'static, str>>,
        cure: impl Into<Cure>,
    ) -> Self {
        if holds || self.verdict != Verdict::Ok {
            return self;
        }
        Self { verdict, why: Some(why.into()), cure: Some(cure.into()), ..self }
    }

    /// Something is wrong.
    pub fn bad(
        verdict: Verdict,
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        why: impl Into<Cow<'static, str>>,
        cure: impl Into<Cure>,
    ) -> Self {
        Self::ok(name, found).unless(false, verdict, why, cure)
    }

    /// The fact could not be seen. It is not assumed to be good.
    pub fn unseen(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        cure: impl Into<Cure>,
    ) -> Self {
        Self::bad(Verdict::Unseen, name, found, "a danger may be hidden here", cure)
    }

    /// Lowers the verdict to a warning, because what this examination is for is not in danger. `why` says what is.
    #[must_use]
    pub fn lowered(self, why: &'static str) -> Self {
        match self.verdict {
            Verdict::Ok | Verdict::Warning => self,
            _ => Self { verdict: Verdict::Warning, why: Some(why.into()), ..self },
        }
    }
}

impl Cure {
    /// A cure with commands.
    pub fn new(
        advice: impl Into<Cow<'static, str>>,
        commands: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let commands = commands.into_iter().map(Into::into).collect();
        Self { advice: advice.into(), commands }
    }
}

impl<T: Into<Cow<'static, str>>> From<T> for Cure {
    fn from(advice: T) -> Self {
        Self { advice: advice.into(), commands: Vec::new() }
    }
}
