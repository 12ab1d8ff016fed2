//! What rows probably are, because this server changed them last.

use std::{collections::HashMap, sync::Mutex};

use fence::ResourceName;

use crate::row::{Row, StoredValue};

/// How many guesses are kept; when there are more, all are forgotten.
const MAX_GUESSES: usize = 100_000;

/// What rows probably are, because this server changed them last. A guess saves loading the row, and
/// decides nothing: the store makes a change only if the row is as it was guessed to be.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<HashMap<ResourceName, Row>>);

impl Guesses {
    /// The guess at a resource's row, if there is one.
    pub(super) fn of(&self, resource: &ResourceName) -> Option<Row> {
        self.0.lock().expect("no panic while it is held").get(resource).cloned()
    }

    /// Takes the rows as they are known to be now; `None` forgets what was guessed.
    pub(super) fn learn<'a>(
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
