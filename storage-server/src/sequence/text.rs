//! Answers as the text that a database keeps.

use std::{fmt, str::FromStr};

use super::{
    Answers, Numbered,
    answers::{Answer, KEPT, Kept},
};

/// The text is not that of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("they are not as a server writes them")]
pub struct InvalidAnswers;

const ANSWERS: [(Answer, &str); 4] = [
    (Answer::Created, "created"),
    (Answer::Replaced, "replaced"),
    (Answer::Deleted, "deleted"),
    (Answer::VersionMismatch, "version-mismatch"),
];

/// The hash of the fence, and for each answer the number, the answer, the version and the hash of
/// the request: `HASH 7:created:1:HASH 8:deleted:2:HASH`.
impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fence.fmt(f)?;
        for Kept { numbered: Numbered { sequence, request }, answer, version } in &self.kept {
            let (_, answer) =
                ANSWERS.iter().find(|(known, _)| known == answer).expect("all are there");
            write!(f, " {sequence}:{answer}:{version}:{request}")?;
        }
        Ok(())
    }
}

impl FromStr for Answers {
    type Err = InvalidAnswers;

    fn from_str(text: &str) -> Result<Self, InvalidAnswers> {
        let mut words = text.split(' ');
        let fence = words.next().ok_or(InvalidAnswers)?.parse()?;
        let kept: Vec<Kept> = words.map(str::parse).collect::<Result<_, _>>()?;
        let is_rising = kept.is_sorted_by(|a, b| a.numbered.sequence < b.numbered.sequence);
        let is_kept = is_rising && (1..=KEPT).contains(&kept.len());
        let answers = Self { fence, kept };
        // The text is compared with the stored one, so it must be the same.
        if is_kept && answers.to_string() == text { Ok(answers) } else { Err(InvalidAnswers) }
    }
}

impl FromStr for Kept {
    type Err = InvalidAnswers;

    fn from_str(text: &str) -> Result<Self, InvalidAnswers> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(InvalidAnswers);
        let sequence = next()?.parse().map_err(|_| InvalidAnswers)?;
        let word = next()?;
        let (answer, _) = ANSWERS.iter().find(|(_, known)| *known == word).ok_or(InvalidAnswers)?;
        let version = next()?.parse().map_err(|_| InvalidAnswers)?;
        let request = next()?.parse()?;
        match parts.next() {
            None => Ok(Self { numbered: Numbered { sequence, request }, answer: *answer, version }),
            Some(_) => Err(InvalidAnswers),
        }
    }
}
