//! The probable state of rows that this server changed last.

use std::{collections::HashMap, mem, sync::Mutex};

use fence::{Fence, ResourceName, Token};

use crate::{
    row::{Row, StoredValue},
    sequence::Answers,
};

/// How many bytes the guesses of one generation have. With names and holders of 32 bytes, these are about
/// 500 000 guesses. The free places of their table and the allocator take up to as much again.
const GENERATION_BYTES: usize = if cfg!(test) { 16_000 } else { 100 << 20 };

/// The probable state of rows that this server changed last. A guess saves loading the row. It
/// can't cause a wrong decision: the store makes a change only if the row still is as guessed.
///
/// When the younger of two generations is full, it becomes the older one, and the older one is
/// forgotten. So the rows that change often keep their guesses.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ResourceName, Guess>,
    young_bytes: usize,
    old: HashMap<ResourceName, Guess>,
    /// See [`Store::connection_epoch`](crate::store::Store::connection_epoch).
    epoch: u64,
}

/// A row without its value.
#[derive(Debug)]
struct Guess {
    fence: Option<Fence>,
    common_fence: Option<Token>,
    version: u64,
    has_value: bool,
    answers: Answers,
}

impl Guess {
    /// How many bytes it has, together with the name of its resource.
    fn bytes(&self, resource: &ResourceName) -> usize {
        let holder = self.fence.as_ref().map_or("", |fence| fence.holder.as_str());
        let texts = resource.as_str().len() + holder.len();
        size_of::<(ResourceName, Self)>() + texts + self.answers.heap_bytes()
    }
}

impl From<&Row> for Guess {
    fn from(row: &Row) -> Self {
        let has_value = row.value != StoredValue::Absent;
        Self {
            fence: row.fence.clone(),
            common_fence: row.common_fence,
            version: row.version,
            has_value,
            answers: row.answers.clone(),
        }
    }
}

impl From<&Guess> for Row {
    fn from(guess: &Guess) -> Self {
        let value = if guess.has_value { StoredValue::Unknown } else { StoredValue::Absent };
        Self {
            fence: guess.fence.clone(),
            common_fence: guess.common_fence,
            version: guess.version,
            value,
            answers: guess.answers.clone(),
        }
    }
}

impl Guesses {
    /// The guessed row of a resource, without its value.
    pub(super) fn get(&self, resource: &ResourceName) -> Option<Row> {
        let guesses = self.0.lock().expect("no panic while it is held");
        guesses.young.get(resource).or_else(|| guesses.old.get(resource)).map(Row::from)
    }

    /// Forgets all guesses that were made in another epoch of the store.
    pub(super) fn enter(&self, epoch: u64) {
        let mut guesses = self.0.lock().expect("no panic while it is held");
        if guesses.epoch != epoch {
            *guesses = Generations { epoch, ..Generations::default() };
        }
    }

    /// Remembers the rows as the next guesses; `None` forgets a resource's guess.
    pub(super) fn update<'a>(
        &self,
        rows: impl Iterator<Item = (&'a ResourceName, Option<&'a Row>)>,
    ) {
        let mut guard = self.0.lock().expect("no panic while it is held");
        let guesses = &mut *guard;
        for (resource, row) in rows {
            match row {
                Some(row) => {
                    let new = Guess::from(row);
                    guesses.young_bytes += new.bytes(resource);
                    match guesses.young.get_mut(resource) {
                        Some(guess) => {
                            guesses.young_bytes -= guess.bytes(resource);
                            *guess = new;
                        }
                        None => drop(guesses.young.insert(resource.clone(), new)),
                    }
                }
                None => {
                    if let Some(guess) = guesses.young.remove(resource) {
                        guesses.young_bytes -= guess.bytes(resource);
                    }
                    guesses.old.remove(resource);
                }
            }
        }
        if guesses.young_bytes >= GENERATION_BYTES {
            guesses.young_bytes = 0;
            guesses.old = mem::take(&mut guesses.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use fence::Holder;

    use super::*;

    /// More guesses of short names than one generation has, and fewer than two have.
    const COUNT: usize = 120;

    fn name(number: usize) -> ResourceName {
        format!("r/{number}").parse().unwrap()
    }

    #[test]
    fn rows_that_change_often_keep_their_guesses() {
        let guesses = Guesses::default();
        let row = Row::default();
        for number in 0..3 * COUNT {
            guesses.update([(&name(0), Some(&row)), (&name(number), Some(&row))].into_iter());
        }
        assert_eq!(guesses.get(&name(0)), Some(row.clone()));
        assert_eq!(guesses.get(&name(3 * COUNT - 1)), Some(row), "the last one");
        assert_eq!(guesses.get(&name(1)), None, "the control");
    }

    #[test]
    fn long_names_holders_and_answers_keep_fewer_guesses() {
        let keeps_first = |name_bytes: usize, holder_bytes: usize, row: Row| {
            let name = |number: usize| format!("{number:0name_bytes$}").parse().unwrap();
            let holder = "x".repeat(holder_bytes).parse().unwrap();
            let row = Row { fence: Some(Fence { token: Token::MIN, holder }), ..row };
            let guesses = Guesses::default();
            for number in 0..COUNT {
                guesses.update([(&name(number), Some(&row))].into_iter());
            }
            guesses.get(&name(0)).is_some()
        };
        let hash = "0".repeat(32);
        let answers: String = (1..17).map(|n| format!(" {n}:deleted:{n}:{hash}")).collect();
        let answers = format!("{hash}{answers}").parse().unwrap();
        assert!(!keeps_first(ResourceName::MAX_BYTES, 0, Row::default()));
        assert!(!keeps_first(3, Holder::MAX_BYTES, Row::default()));
        assert!(!keeps_first(3, 0, Row { answers, ..Row::default() }));
        assert!(keeps_first(3, 0, Row::default()), "the control");
    }

    #[test]
    fn guesses_of_another_epoch_are_forgotten() {
        let guesses = Guesses::default();
        guesses.update([(&name(0), Some(&Row::default()))].into_iter());
        guesses.enter(0);
        assert!(guesses.get(&name(0)).is_some());
        guesses.enter(1);
        assert!(guesses.get(&name(0)).is_none());
    }
}
