//! The transactions that clients repeat, fenced and unfenced.

/// What one client does in one transaction. Each database has SQL of its own for it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Workload {
    Upsert,
    UpsertWithRule,
    ClaimAndUpsert,
    Transaction,
    TransactionOfTwoRows,
    ClaimThenUpsert,
    ClaimThenUpsertProtected,
    PresentThenUpsertProtected,
}

impl Workload {
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Upsert => "an upsert, unfenced",
            Self::UpsertWithRule => "an upsert with the rule in it",
            Self::ClaimAndUpsert => "claim and upsert in one statement",
            Self::Transaction => "a transaction with an upsert, unfenced",
            Self::TransactionOfTwoRows => "the same, and a second row written",
            Self::ClaimThenUpsert => "claim and upsert in a transaction",
            Self::ClaimThenUpsertProtected => "claim and upsert into a protected table",
            Self::PresentThenUpsertProtected => "present and upsert into a protected table",
        }
    }

    /// The unfenced workload that this one is compared with.
    pub(super) fn unfenced(self) -> Self {
        match self {
            Self::Upsert | Self::UpsertWithRule | Self::ClaimAndUpsert => Self::Upsert,
            _ => Self::Transaction,
        }
    }
}
