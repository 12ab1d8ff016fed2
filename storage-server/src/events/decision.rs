//! A decision, as the clients that watch see it.

use fence::Token;
use serde::Serialize;

use crate::{
    operation::{Decided, Operation, Outcome},
    transaction::{DecidedTransaction, Transaction},
};

/// A decision on an operation. Nobody sees a holder whole: it is the proof of holding.
#[derive(Debug, Serialize)]
pub(crate) struct Decision<'a> {
    pub(super) resource: &'a str,
    action: &'static str,
    decision: &'static str,
    /// Why it was rejected: the slug of the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Why it would have been rejected if the server enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    overruled: Option<&'static str>,
    token: Option<Token>,
    holder: String,
    /// The highest token that the resource has seen, if the decision shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

impl<'a> Decision<'a> {
    pub(crate) fn from_operation(operation: &'a Operation, decided: &Decided) -> Self {
        let Decided { outcome, overruled } = decided;
        let offered = operation.offered.as_ref();
        let token = offered.map(|offered| offered.token);
        let (decision, reason, version) = match outcome {
            Outcome::Claimed { version } | Outcome::Read { version, .. } => {
                ("claimed", None, Some(*version))
            }
            Outcome::Written { version, .. } | Outcome::Deleted { version } => {
                ("accepted", None, Some(*version))
            }
            Outcome::VersionMismatch { version } => {
                ("rejected", Some("version-mismatch"), Some(*version))
            }
            Outcome::Rejected(rejection) => ("rejected", Some(rejection.reason.slug()), None),
            Outcome::TokenTooHigh { .. } => ("rejected", Some("token-too-high"), None),
            Outcome::SequenceReused { .. } => ("rejected", Some("sequence-reused"), None),
            Outcome::SequenceTooOld { .. } => ("rejected", Some("sequence-too-old"), None),
        };
        let fence = match outcome {
            Outcome::Rejected(rejection) => Some(rejection.highest_token),
            Outcome::TokenTooHigh { .. } => None,
            // All others have claimed, unless the fence was higher and the server does not enforce.
            _ => overruled.map(|rejection| rejection.highest_token).or(token),
        };
        Self {
            resource: operation.resource.as_str(),
            action: operation.action.name(),
            decision,
            reason,
            overruled: overruled.map(|rejection| rejection.reason.slug()),
            token,
            holder: offered.map_or_else(String::new, |offered| offered.holder.redacted()),
            fence,
            version,
        }
    }

    /// The decisions on the writes of a transaction. If it was rejected, so was each of its writes.
    pub(crate) fn from_transaction(
        transaction: &'a Transaction,
        decided: &DecidedTransaction,
    ) -> impl Iterator<Item = Self> {
        let has_rejected_write = decided.writes.iter().any(|write| write.outcome.is_rejection());
        let reason = if has_rejected_write { "transaction-rejected" } else { "condition-not-met" };
        let is_rejected = decided.is_rejection();
        transaction.writes.iter().zip(&decided.writes).map(move |(write, decided)| {
            let decision = Self::from_operation(write, decided);
            if !is_rejected || decided.outcome.is_rejection() {
                return decision;
            }
            Self {
                decision: "rejected",
                reason: Some(reason),
                overruled: None,
                fence: None,
                version: None,
                ..decision
            }
        })
    }
}
