//! Errors as problem documents (RFC 9457).

mod document;
pub(super) mod kind;
pub(super) mod pages;

use axum::http::{Method, StatusCode};
use fence::{
    InvalidHolder, InvalidName, InvalidToken, Rejection, RejectionReason, ResourceName, Token,
};
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;

use self::kind::{
    CONDITION_NOT_MET, ENCODED_VALUE, FORBIDDEN, HEAD_TOO_LARGE, HOLDER_CONFLICT, KINDS, Kind,
    MALFORMED_HOLDER, MALFORMED_NAME, MALFORMED_REQUEST, MALFORMED_SEQUENCE, MALFORMED_TOKEN,
    METHOD_NOT_ALLOWED, NO_TRANSACTIONS, NOT_FOUND, NOT_JSON, SEQUENCE_REUSED, SEQUENCE_TOO_OLD,
    SLOW_BODY, STALE_TOKEN, STATE_LOCK_LOST, STATE_LOCKED, TOKEN_REQUIRED, TOKEN_TOO_HIGH,
    TOO_MANY_REQUESTS, TRANSACTION_REJECTED, UNAUTHENTICATED, UNAVAILABLE, VALUE_TOO_LARGE,
    VERSION_MISMATCH, VERSION_NOT_REACHED, WRONG_HOST,
};
use crate::{
    access::{Caller, identity::Permission},
    committer::job::{Unavailable, UnavailableOutcome},
    sequence::Sequence,
};

/// How much of a path, a name or a host is quoted in a detail, and how much of a message that may quote.
/// Otherwise a client could have the server hold its own long path for it.
const MAX_QUOTED_BYTES: usize = 256;
const MAX_DETAIL_BYTES: usize = 1 << 10;

/// Which problem a response is, as an extension of the response.
#[derive(Clone, Copy)]
pub(super) struct Slug(pub(super) &'static str);

/// The slugs of all problems.
pub(super) fn slugs() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.slug)
}

/// The response to a request that failed.
#[derive(Debug)]
pub(super) struct Problem {
    kind: &'static Kind,
    detail: String,
    members: Map<String, Value>,
    /// Memory for the document, if that may be large.
    memory: Option<OwnedSemaphorePermit>,
    /// Whether too many bytes are in flight.
    is_over_budget: bool,
}

impl Problem {
    pub(super) fn malformed_token(error: InvalidToken) -> Self {
        Self::new(&MALFORMED_TOKEN, error)
    }

    pub(super) fn malformed_holder(error: InvalidHolder) -> Self {
        Self::new(&MALFORMED_HOLDER, error)
    }

    pub(super) fn malformed_name(error: InvalidName) -> Self {
        Self::new(&MALFORMED_NAME, error)
    }

    pub(super) fn malformed_request(detail: impl ToString) -> Self {
        Self::new(&MALFORMED_REQUEST, beginning(&detail.to_string(), MAX_DETAIL_BYTES))
    }

    pub(super) fn repeated_token() -> Self {
        Self::new(&MALFORMED_TOKEN, "Fencing-Token was sent more than once")
    }

    pub(super) fn repeated_holder() -> Self {
        Self::new(&MALFORMED_HOLDER, "Fencing-Holder was sent more than once")
    }

    pub(super) fn malformed_sequence() -> Self {
        Self::new(
            &MALFORMED_SEQUENCE,
            "a sequence number is a whole number from 1 to 999999999999999, in digits without a \
             leading zero",
        )
    }

    pub(super) fn repeated_sequence() -> Self {
        Self::new(&MALFORMED_SEQUENCE, "Fencing-Sequence was sent more than once")
    }

    pub(super) fn malformed_path() -> Self {
        Self::new(&MALFORMED_NAME, "a '%' in the path must be followed by two hexadecimal digits")
    }

    pub(super) fn no_value(resource: &ResourceName) -> Self {
        Self::new(&NOT_FOUND, "the resource has no value").with("resource", resource.as_str())
    }

    pub(super) fn no_fence(resource: &ResourceName) -> Self {
        Self::new(&NOT_FOUND, "the resource has no fence").with("resource", resource.as_str())
    }

    pub(super) fn no_such_page(path: &str) -> Self {
        let path = beginning(path, MAX_QUOTED_BYTES);
        Self::new(&NOT_FOUND, format!("this server does not serve {path}"))
    }

    pub(super) fn method_not_allowed(method: &Method, path: &str) -> Self {
        let path = beginning(path, MAX_QUOTED_BYTES);
        let method = beginning(method.as_str(), MAX_QUOTED_BYTES);
        Self::new(&METHOD_NOT_ALLOWED, format!("{path} does not support {method}"))
    }

    pub(super) fn unauthenticated() -> Self {
        Self::new(
            &UNAUTHENTICATED,
            "the request has no bearer token or client certificate of a known identity",
        )
    }

    pub(super) fn too_many_requests() -> Self {
        Self::new(&TOO_MANY_REQUESTS, "the client has sent too many requests")
            .with("outcome", "none")
    }

    pub(super) fn forbidden(caller: &Caller, permission: Permission, name: &str) -> Self {
        let (identity, name) = (caller.name(), beginning(name, MAX_QUOTED_BYTES));
        Self::new(&FORBIDDEN, format!("{identity} may not {permission} {name:?}"))
            .with("identity", identity)
            .with("permission", permission.to_string())
    }

    pub(super) fn wrong_host(name: &str) -> Self {
        let name = beginning(name, MAX_QUOTED_BYTES);
        Self::new(
            &WRONG_HOST,
            format!("this server is for localhost and loopback addresses, not for {name:?}"),
        )
    }

    pub(super) fn rejected(resource: &ResourceName, rejection: Rejection) -> Self {
        let Rejection { reason, token, highest_token } = rejection;
        let (kind, detail) = match reason {
            RejectionReason::Stale if token == highest_token => (
                &STALE_TOKEN,
                format!("token {token} is not above the common fence at {highest_token}"),
            ),
            RejectionReason::Stale => {
                (&STALE_TOKEN, format!("token {token} is below the fence at {highest_token}"))
            }
            RejectionReason::HolderConflict => {
                (&HOLDER_CONFLICT, format!("token {token} was accepted from another holder"))
            }
        };
        let hint = rejection.hint().map(|hint| format!(". {hint}")).unwrap_or_default();
        Self::new(kind, detail + &hint)
            .with("resource", resource.as_str())
            .with("token", token.as_u64())
            .with("highest_token", highest_token.as_u64())
    }

    pub(super) fn token_too_high(resource: &ResourceName, token: Token, ceiling: Token) -> Self {
        Self::new(&TOKEN_TOO_HIGH, format!("token {token} is above the ceiling at {ceiling}"))
            .with("resource", resource.as_str())
            .with("token", token.as_u64())
            .with("ceiling", ceiling.as_u64())
    }

    /// `has_unmatchable` says that `If-Match` has a tag that matches no version.
    pub(super) fn version_mismatch(
        resource: &ResourceName,
        version: u64,
        has_unmatchable: bool,
    ) -> Self {
        let mut detail = format!("the resource is at version {version}");
        if has_unmatchable {
            detail += ". If-Match has a tag that never matches: a version is a number in quotes, \
                without W/ before it. A proxy that compresses answers changes tags so, to W/\"3\" or \
                \"3-gzip\"";
        }
        Self::new(&VERSION_MISMATCH, detail)
            .with("resource", resource.as_str())
            .with("version", version)
    }

    pub(super) fn version_not_reached(
        resource: &ResourceName,
        version: u64,
        at_least: u64,
    ) -> Self {
        let detail = format!("the resource is at version {version} here, not yet at {at_least}");
        Self::new(&VERSION_NOT_REACHED, detail)
            .with("resource", resource.as_str())
            .with("version", version)
            .with("outcome", outcome_text(UnavailableOutcome::None))
    }

    /// The state is locked by somebody else, whose lock has these members.
    pub(super) fn state_locked(
        resource: &ResourceName,
        detail: String,
        lock: Map<String, Value>,
    ) -> Self {
        let problem = Self::new(&STATE_LOCKED, detail);
        let problem = lock.into_iter().fold(problem, |it, (name, value)| it.with(&name, value));
        problem.with("resource", resource.as_str())
    }

    pub(super) fn state_lock_lost(resource: &ResourceName, reason: &str) -> Self {
        let detail = format!(
            "{reason}. End this run, and don't push errored.tfstate: run 'terraform plan', and compare \
             the state with that file"
        );
        Self::new(&STATE_LOCK_LOST, detail).with("resource", resource.as_str())
    }

    pub(super) fn sequence_reused(resource: &ResourceName, sequence: Sequence) -> Self {
        Self::new(&SEQUENCE_REUSED, format!("another request had the sequence number {sequence}"))
            .with("resource", resource.as_str())
            .with("sequence", sequence.as_u64())
    }

    pub(super) fn sequence_too_old(
        resource: &ResourceName,
        sequence: Sequence,
        highest: Sequence,
        outcome: UnavailableOutcome,
    ) -> Self {
        Self::new(
            &SEQUENCE_TOO_OLD,
            format!("the sequence number {sequence} is below the highest, which is {highest}"),
        )
        .with("resource", resource.as_str())
        .with("sequence", sequence.as_u64())
        .with("highest_sequence", highest.as_u64())
        .with("outcome", outcome_text(outcome))
    }

    pub(super) fn transaction_rejected(resource: &ResourceName, rejection: Rejection) -> Self {
        let detail = format!("the token for {:?} was rejected", resource.as_str());
        Self::new(&TRANSACTION_REJECTED, format!("{detail}: {}", rejection.reason.slug()))
    }

    pub(super) fn condition_not_met(resource: &ResourceName) -> Self {
        Self::new(&CONDITION_NOT_MET, format!("{:?} has another version", resource.as_str()))
    }

    pub(super) fn no_transactions() -> Self {
        Self::new(&NO_TRANSACTIONS, "object storage changes one resource at a time")
    }

    pub(super) fn not_json() -> Self {
        Self::new(&NOT_JSON, "the Content-Type must be application/json")
    }

    pub(super) fn encoded_value() -> Self {
        Self::new(&ENCODED_VALUE, "a body with a Content-Encoding is not accepted")
    }

    pub(super) fn value_too_large(limit: u32) -> Self {
        Self::new(&VALUE_TOO_LARGE, format!("the body may have at most {limit} bytes"))
            .with("limit", limit)
    }

    pub(super) fn token_required(where_it_belongs: &str) -> Self {
        Self::new(&TOKEN_REQUIRED, format!("{where_it_belongs} is missing"))
    }

    /// There is no decision. Why may say more of the server than all clients may know: only operators learn
    /// it, and for the others it is logged.
    pub(super) fn unavailable(unavailable: Unavailable, caller: &Caller) -> Self {
        let Unavailable { outcome, reason } = unavailable;
        if caller.operates() {
            return Self::no_decision(outcome, reason);
        }
        tracing::warn!("a request was not decided: {reason}");
        Self::no_decision(outcome, "the log of the server says why, under the id of this request")
    }

    /// Nothing has happened, for this reason.
    pub(super) fn nothing_done(reason: String) -> Self {
        Self::no_decision(UnavailableOutcome::None, reason)
    }

    /// The value that was claimed is not there any more, and the claim has happened.
    pub(super) fn overtaken(resource: &ResourceName) -> Self {
        let reason = format!("{resource} was written to before its value was read");
        Self::no_decision(UnavailableOutcome::Unknown, reason)
    }

    pub(super) fn contended_lock(state: &ResourceName) -> Self {
        Self::nothing_done(format!("other clients changed the lock of {state} again and again"))
    }

    /// The row of a lock was not written by a server.
    pub(super) fn malformed_lock(lock: &ResourceName) -> Self {
        Self::nothing_done(format!("{lock} is no lock: delete this resource"))
    }

    pub(super) fn no_token_left(state: &ResourceName) -> Self {
        Self::nothing_done(format!(
            "the fence of {state} or of its lock has the highest token: lower it with \
             `storage-server fence set --force`"
        ))
    }

    pub(super) fn over_budget(outcome: UnavailableOutcome) -> Self {
        let problem = Self::no_decision(outcome, "too many bytes are in flight");
        Self { is_over_budget: true, ..problem }
    }

    fn no_decision(outcome: UnavailableOutcome, reason: impl ToString) -> Self {
        Self::new(&UNAVAILABLE, reason).with("outcome", outcome_text(outcome))
    }

    pub(super) fn head_too_large(limit: usize) -> Self {
        Self::new(&HEAD_TOO_LARGE, format!("a request may have at most {limit} headers"))
    }

    pub(super) fn slow_body() -> Self {
        Self::new(&SLOW_BODY, "the rest of the body did not come in time").with("outcome", "none")
    }

    /// Says of a fenced read without an answer that its claim has happened.
    pub(super) fn after_the_claim(self) -> Self {
        let mut problem = self.after_a_change();
        problem.detail += ". The claim was accepted: you may repeat the read with the same token";
        problem
    }

    /// Says of a missing decision that something has happened before.
    pub(super) fn after_a_change(mut self) -> Self {
        if self.kind.status == StatusCode::SERVICE_UNAVAILABLE {
            self = self.with("outcome", outcome_text(UnavailableOutcome::Unknown));
        }
        self
    }
}

/// The beginning of a text that a client may have made as long as it likes.
pub(super) fn beginning(text: &str, most_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(most_bytes)]
}

fn outcome_text(outcome: UnavailableOutcome) -> &'static str {
    match outcome {
        UnavailableOutcome::None => "none",
        UnavailableOutcome::Unknown => "unknown",
    }
}
