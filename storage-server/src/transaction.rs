//! Writes of several resources that take effect together or not at all.

use fence::ResourceName;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    config::Enforcement,
    operation::{Condition, Decided, Operation},
    row::Row,
};

/// Conditions on resources, and writes of others or the same. A single operation is one with one write.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// What must be true for the writes to take effect.
    pub(crate) conditions: Vec<ResourceCondition>,
    /// The writes and deletes, each of another resource.
    pub(crate) writes: Vec<Operation>,
    /// The memory of the body that the transaction came in, if it came in one. Names and values take memory
    /// until the transaction is decided.
    pub(crate) _memory: Option<OwnedSemaphorePermit>,
}

/// What must be true of a resource's version.
#[derive(Clone, Debug)]
pub(crate) struct ResourceCondition {
    pub(crate) resource: ResourceName,
    pub(crate) condition: Condition,
}

/// A decision on a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecidedTransaction {
    /// The conditions, in the order of the transaction.
    pub(crate) conditions: Vec<CheckedCondition>,
    /// The decisions on the writes, in the order of the transaction. If the transaction was
    /// rejected, the accepted ones among them have not taken effect either.
    pub(crate) writes: Vec<Decided>,
}

/// A condition that was compared with its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedCondition {
    /// The version of the resource's value; `None` if it has none.
    pub(crate) value_version: Option<u64>,
    pub(crate) is_met: bool,
}

impl Transaction {
    /// The transaction that is a single operation.
    pub(crate) fn single(operation: Operation) -> Self {
        Self { conditions: Vec::new(), writes: vec![operation], _memory: None }
    }

    /// The resources that it writes or compares. One that it does both with comes twice.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &ResourceName> {
        let conditions = self.conditions.iter().map(|condition| &condition.resource);
        conditions.chain(self.writes.iter().map(|write| &write.resource))
    }

    /// Applies the transaction to the rows of its resources: all writes if all conditions are met and
    /// no token is rejected, and otherwise nothing. All of it is decided on the rows as they are,
    /// so that the decisions show everything that is wrong.
    ///
    /// The resources are in the byte order of their names, and each has its row at the same place.
    ///
    /// # Panics
    /// If the row of a resource is missing.
    pub(crate) fn apply(
        &self,
        resources: &[ResourceName],
        rows: &mut [Row],
        enforcement: Enforcement,
    ) -> DecidedTransaction {
        let place = |resource| resources.binary_search(resource).expect("each has a row");
        // Most are a single operation, which changes nothing if its token is rejected.
        if let ([], [write]) = (&*self.conditions, &*self.writes) {
            let decided = rows[place(&write.resource)].apply(write, enforcement);
            return DecidedTransaction { conditions: Vec::new(), writes: vec![decided] };
        }
        let conditions = self.conditions.iter().map(|ResourceCondition { resource, condition }| {
            let value_version = rows[place(resource)].value_version();
            CheckedCondition { value_version, is_met: condition.is_met_by(value_version) }
        });
        let conditions = conditions.collect();
        let writes = self.writes.iter().map(|write| {
            let mut row = rows[place(&write.resource)].clone();
            let decided = row.apply(write, enforcement);
            (row, decided)
        });
        let (written, writes): (Vec<_>, _) = writes.unzip();
        let decided = DecidedTransaction { conditions, writes };
        if !decided.is_rejection() {
            for (write, row) in self.writes.iter().zip(written) {
                rows[place(&write.resource)] = row;
            }
        }
        decided
    }
}

impl DecidedTransaction {
    /// Whether the transaction was rejected, and so had no effect.
    pub(crate) fn is_rejection(&self) -> bool {
        self.conditions.iter().any(|condition| !condition.is_met)
            || self.writes.iter().any(|write| write.outcome.is_rejection())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fence::{Fence, Token};
    use proptest::{
        collection::{btree_map, vec},
        prelude::*,
        test_runner::TestRunner,
    };

    use super::*;
    use crate::{
        operation::{Action, Content, Outcome, Versions},
        row::StoredValue,
    };

    const NAMES: [&str; 3] = ["a", "b", "c"];

    /// A resource as a simple model knows it.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Modelled {
        token: u64,
        version: u64,
        value: Option<u8>,
    }

    /// A transaction of the model: the version, or 0 for no value, that each condition names; the
    /// token and new value of each write.
    #[derive(Clone, Debug)]
    struct Requested {
        conditions: BTreeMap<&'static str, u64>,
        writes: BTreeMap<&'static str, (u64, Option<u8>)>,
    }

    type Model = BTreeMap<&'static str, Modelled>;

    impl Requested {
        /// Whether the model rejects it.
        fn is_rejected_by(&self, model: &Model) -> bool {
            let is_met = |(name, version): (&&str, &u64)| {
                let Modelled { version: at, value, .. } = model[*name].clone();
                *version == value.map_or(0, |_| at)
            };
            let is_accepted = |(name, (token, _)): (&&str, &(u64, _))| *token >= model[*name].token;
            !self.conditions.iter().all(is_met) || !self.writes.iter().all(is_accepted)
        }

        fn take_effect(&self, model: &mut Model) {
            for (name, (token, value)) in &self.writes {
                let resource = model.get_mut(name).unwrap();
                let version = resource.version + 1;
                *resource = Modelled { token: *token, version, value: *value };
            }
        }

        fn transaction(&self) -> Transaction {
            let conditions = self.conditions.iter().map(|(name, version)| ResourceCondition {
                resource: name.parse().unwrap(),
                condition: match version {
                    0 => Condition { if_none_match: Some(Versions::Any), if_match: None },
                    _ => Condition {
                        if_match: Some(Versions::Listed(vec![*version])),
                        if_none_match: None,
                    },
                },
            });
            let writes = self.writes.iter().map(|(name, (token, value))| Operation {
                resource: name.parse().unwrap(),
                offered: Some(Fence {
                    token: Token::new(*token).unwrap(),
                    holder: Default::default(),
                }),
                ceiling: Token::MAX,
                numbered: None,
                action: match value {
                    Some(byte) => Action::Write {
                        content: Content {
                            content_type: "text/plain".to_owned(),
                            bytes: vec![*byte].into(),
                        },
                        condition: Condition::default(),
                    },
                    None => Action::Delete { condition: Condition::default() },
                },
            });
            let (conditions, writes) = (conditions.collect(), writes.collect());
            Transaction { conditions, writes, _memory: None }
        }
    }

    fn requested() -> impl Strategy<Value = Requested> {
        let name = || prop::sample::select(&NAMES[..]);
        let conditions = btree_map(name(), 0..4_u64, 0..3);
        let writes = btree_map(name(), (1..4_u64, prop::option::of(0..3_u8)), 1..4);
        (conditions, writes).prop_map(|(conditions, writes)| Requested { conditions, writes })
    }

    fn modelled(row: &Row) -> Modelled {
        let value = match &row.value {
            StoredValue::Present(value) => Some(value.content.bytes[0]),
            StoredValue::Absent | StoredValue::Unknown | StoredValue::NotLoaded(_) => None,
        };
        let token = row.fence.as_ref().map_or(0, |fence| fence.token.as_u64());
        Modelled { token, version: row.version, value }
    }

    type Apply = fn(&Transaction, &[ResourceName], &mut [Row], Enforcement) -> DecidedTransaction;

    /// Applies transactions to rows, and to the model.
    fn run(apply: Apply) -> Result<(), impl std::fmt::Display> {
        TestRunner::default().run(&vec(requested(), 0..24), |sequence| {
            let names: [ResourceName; 3] = NAMES.map(|name| name.parse().unwrap());
            let mut rows = NAMES.map(|_| Row::default());
            let mut model: Model = NAMES.iter().map(|name| (*name, Modelled::default())).collect();
            for requested in sequence {
                let is_rejected = requested.is_rejected_by(&model);
                if !is_rejected {
                    requested.take_effect(&mut model);
                }
                let transaction = requested.transaction();
                let decided = apply(&transaction, &names, &mut rows, Enforcement::Enforce);
                prop_assert_eq!(decided.is_rejection(), is_rejected, "{:?}", requested);
                for (row, expected) in rows.iter().zip(model.values()) {
                    prop_assert_eq!(&modelled(row), expected, "after {:?}", requested);
                }
                for (write, decided) in transaction.writes.iter().zip(&decided.writes) {
                    if let (
                        false,
                        Outcome::Written { version, .. } | Outcome::Deleted { version },
                    ) = (is_rejected, &decided.outcome)
                    {
                        let place = names.binary_search(&write.resource).unwrap();
                        prop_assert_eq!(*version, rows[place].version);
                    }
                }
            }
            Ok(())
        })
    }

    #[test]
    fn all_writes_take_effect_or_none() {
        run(Transaction::apply).unwrap_or_else(|failure| panic!("{failure}"));
    }

    #[test]
    fn wrong_transactions_fail_the_same_check() {
        let each_write_by_itself: Apply = |transaction, names, rows, enforcement| {
            let decided = transaction.apply(names, &mut rows.to_vec(), enforcement);
            if decided.conditions.iter().all(|condition| condition.is_met) {
                for write in &transaction.writes {
                    let place = names.binary_search(&write.resource).unwrap();
                    rows[place].apply(write, enforcement);
                }
            }
            decided
        };
        let claims_though_rejected: Apply = |transaction, names, rows, enforcement| {
            let decided = transaction.apply(names, rows, enforcement);
            if decided.is_rejection() {
                for write in &transaction.writes {
                    let claim = Operation { action: Action::Claim, ..write.clone() };
                    let place = names.binary_search(&write.resource).unwrap();
                    rows[place].apply(&claim, enforcement);
                }
            }
            decided
        };
        let without_conditions: Apply = |transaction, names, rows, enforcement| {
            let writes = transaction.writes.clone();
            let transaction = Transaction { conditions: Vec::new(), writes, _memory: None };
            transaction.apply(names, rows, enforcement)
        };
        for wrong in [each_write_by_itself, claims_though_rejected, without_conditions] {
            assert!(run(wrong).is_err());
        }
    }
}
