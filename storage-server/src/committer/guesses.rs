//! The probable state of rows that this server changed last.

use std::{collections::HashMap, sync::Mutex};

use fence::ResourceName;

use crate::row::{Row, StoredValue};

/// How many guesses to keep. When there are more, all are forgotten.
const MAX_GUESSES: usize = 100_000;

/// The probable state of rows that this server changed last. A guess saves loading the row. It
/// can't cause a wrong decision: the store makes a change only if the row still is as guessed.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<HashMap<ResourceName, Row>>);

impl Guesses {
    /// The guessed row of a resource, without its value.
    pub(super) fn get(&self, resource: &ResourceName) -> Option<Row> {
        self.0.lock().expect("no panic while it is held").get(resource).cloned()
    }

    /// Remembers the rows as the next guesses; `None` forgets a resource's guess.
    pub(super) fn update<'a>(
        &self,
        rows: impl Iterator<Item = (&'a ResourceName, Option<&'a Row>)>,
    ) {
        let mut guesses = self.0.lock().expect("no panic while it is held");
        for (resource, row) in rows {
            match row {
                Some(row) => {
                    let value = match row.value {
                        StoredValue::Absent => StoredValue::Absent,
                        StoredValue::NotLoaded | StoredValue::Present(_) => StoredValue::NotLoaded,
                    };
                    let row = Row { fence: row.fence.clone(), version: row.version, value };
                    guesses.insert(resource.clone(), row);
                }
                None => {
                    guesses.remove(resource);
                }
            }
        }
        if guesses.len() > MAX_GUESSES {
            guesses.clear();
        }
    }
}
