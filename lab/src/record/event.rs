//! The events of a run.

use fence::{RejectionReason, Token};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    actor::{Actor, deserialize_client, serialize_client},
    wire::Wire,
};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time, in milliseconds from the start of the run.
    pub at_ms: u64,
    /// The name of the world that it happened in.
    pub world: String,
    /// Who did it, or to whom it happened.
    pub actor: Actor,
    /// The token that it concerns, if any.
    pub token: Option<Token>,
    /// What happened. In JSON its name is the member `event`, beside its details.
    #[serde(flatten)]
    pub kind: EventKind,
    /// What went over the wire, if it is a client's event. An earlier record has none.
    #[serde(default, skip_serializing_if = "Wire::is_empty")]
    pub wire: Wire,
}

/// What happened. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "a variant's sentence says what its fields are")]
pub enum EventKind {
    /// A server or a client was started.
    Started,
    /// The storage is a table, or a server on this database: `sqlite`, `postgres`, `object-storage` or
    /// `postgres-table`.
    StoreIs { store: String },

    // The lock service, before and between its grants.
    /// The counter of tokens was set to this event's token, or to 0 without one.
    CounterPreset,
    /// A missing counter will start at the clock.
    CounterFromTheClock,
    /// The lock service was killed and started again, and has kept this many keys.
    Restarted { keys: u64 },
    /// A snapshot of the lock service's data was saved.
    SnapshotSaved,
    /// The lock service was killed, and started again with the data of the snapshot.
    SnapshotRestored,
    /// The replica has caught up with its primary.
    InStep,
    /// The replica was cut off from its primary.
    CutOff,
    /// The replica is the lock service from now on.
    Promoted,
    /// The lease of a client expired in the lock service.
    LeaseExpired {
        #[serde(serialize_with = "serialize_client", deserialize_with = "deserialize_client")]
        whose: Actor,
    },
    /// A dead client has left its lock. Without a time it never expires.
    LockRemains { remaining_ms: Option<u64> },
    /// Somebody else deleted a client's lock.
    LockDeleted {
        #[serde(serialize_with = "serialize_client", deserialize_with = "deserialize_client")]
        whose: Actor,
    },
    /// The lock service has lost a client's lock, and the client's lease is not over.
    LockForgotten {
        #[serde(serialize_with = "serialize_client", deserialize_with = "deserialize_client")]
        whose: Actor,
    },
    /// A client still has its lock.
    LockKept {
        #[serde(serialize_with = "serialize_client", deserialize_with = "deserialize_client")]
        whose: Actor,
    },
    /// This many clients wait for the lock.
    WaitedFor { waiters: u64 },
    /// What the lock service has done for the clients that waited.
    Done { scripts: u64, commands: u64 },
    /// What is left of a sale.
    Stock { left: u64, sold: u64, items: u64 },

    // The network.
    /// The network holds back a write.
    RequestHeld,
    /// The network delivers the write that it held back.
    RequestDelivered,
    /// The network cut a client off from the lock service.
    ClientCutOff {
        #[serde(serialize_with = "serialize_client", deserialize_with = "deserialize_client")]
        client: Actor,
    },
    /// A client can reach the lock service again.
    ClientConnected {
        #[serde(serialize_with = "serialize_client", deserialize_with = "deserialize_client")]
        client: Actor,
    },

    // The database beneath the storage, of which one member is the primary.
    /// The standbys were cut off from the primary.
    StandbysCutOff,
    /// A commit waits for a standby.
    CommitWaits,
    /// The primary was killed.
    PrimaryKilled,
    /// The primary was cut off from all others but client 1 and its storage server.
    PrimaryCutOff,
    /// A standby is the primary from now on. The fence that it has is at this event's token.
    StandbyPromoted,
    /// The old primary accepted a claim or a write of a client, beside the new primary.
    AcceptedByOldPrimary(Content),

    // Several nodes of a lock service, named as in `D and E`.
    /// The network cut the nodes off from all clients.
    Unreachable { nodes: String },
    /// The nodes can be reached again, and have lost nothing.
    ReachableAgain { nodes: String },
    /// A node was killed and started again, and has forgotten the lock. It has kept this many keys.
    Forgot { nodes: String, keys: u64 },
    /// A node's clock jumped forward.
    ClockJumped { nodes: String, seconds: u64 },
    /// The nodes granted the lock, and their replies were lost.
    RepliesLost { nodes: String },
    /// On this many of the nodes the lock is taken.
    Taken {
        nodes: String,
        taken: u64,
        /// The clients that hold it, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held_by: Option<String>,
    },
    /// A node votes again because somebody set its run id by hand.
    AdmittedByHand { nodes: String },
    /// The admission of a node has begun.
    Admitting { nodes: String },
    /// The admission of a node has ended: it votes again.
    Admitted { nodes: String },

    // Clients and their locks.
    /// A client was stopped (SIGSTOP).
    Paused,
    /// A stopped client goes on (SIGCONT).
    Resumed,
    /// A client was killed (SIGKILL).
    Killed,
    /// A client has the lock, which does not expire yet.
    SetWithoutExpiry,
    /// A client has acquired the lock.
    Acquired {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_ms: Option<u64>,
        /// How long the lease is valid.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remaining_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<String>,
        /// The beginning of the holder's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<String>,
        /// The clients that hold the lock too, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beside: Option<String>,
    },
    /// Too few nodes granted the lock.
    NoMajority,
    /// The lock service did not answer the client. A client that wanted to release its lock has given
    /// it up.
    Unanswered,
    /// Somebody else holds the lock, and the client waits.
    Busy,
    /// The client has waited this long, and does not wait any more.
    GaveUp { waited_ms: u64 },
    /// The lease has a higher token now: this event's token.
    Reissued { instead_of: Token },
    /// The client knows that its lease is lost.
    Lost,
    /// The client looked who holds the lock (GET): itself.
    Compared { owner: String },
    /// The client deleted this many keys (DEL).
    Deleted { keys: u64 },
    /// The client released its lock.
    Released,
    /// The client found that it did not hold the lock any more.
    LeaseLost,
    /// The client checked its lease, which was over.
    LeaseOver,

    // Clients and their work.
    /// The client read.
    Read(Content),
    /// The storage rejected the client's claim.
    ClaimRejected(Rejection),
    /// The client checked its lease, and is about to write.
    LeaseChecked { remaining_ms: u64 },
    /// The client wrote.
    Written {
        #[serde(flatten)]
        content: Content,
        /// How many writes of others it has overwritten without having read them.
        #[serde(default, skip_serializing_if = "is_zero")]
        overwrites_unseen: u64,
    },
    /// A client's request was rejected: an event of the client, and one of the storage.
    Rejected(Rejection),
    /// The storage has not decided on a client's request.
    Unavailable,
    /// The client has done its work.
    Worked,
    /// A buyer read how many items are left.
    StockRead { left: u64 },
    /// A buyer took an item.
    Bought { left: u64 },
    /// A buyer was rejected.
    NotBought,
    /// A buyer's transaction was aborted, because others have changed the stock.
    Aborted,

    // Crowds.
    /// This many buyers came at once: the sum of what they did.
    Served { buyers: u64, bought: u64, sold_out: u64, rejected: u64, aborted: u64 },
    /// All clients that waited have had the lock, one after the other.
    HandedOver { handovers: u64 },

    // The storage.
    /// The storage answered a read that claims nothing.
    Answered(Content),
    /// The storage accepted a claim.
    AcceptedClaim(Content),
    /// The storage accepted a write.
    AcceptedWrite(Content),
    /// The storage accepted a write although it had accepted a higher token before.
    AcceptedStaleWrite(Content),
    /// The storage accepted a token that another client has too.
    AcceptedAnothersToken(Content),
}

/// The content of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The value, if there is one.
    pub value: Option<String>,
    /// Its version, if there is a value and the storage counts versions.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub version: Option<Option<u64>>,
    /// Whether the read that returned it also claimed, if the storage can read without claiming.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<bool>,
}

/// How the storage rejected this event's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// The fence's token.
    pub highest_token: Token,
    /// Which of the rule's rejections it is.
    pub reason: Reason,
}

/// Why a token was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The storage has seen a higher token.
    StaleToken,
    /// The token belongs to another holder.
    HolderConflict,
}

impl From<fence::Rejection> for Rejection {
    fn from(fence::Rejection { reason, highest_token, .. }: fence::Rejection) -> Self {
        let reason = match reason {
            RejectionReason::Stale => Reason::StaleToken,
            RejectionReason::HolderConflict => Reason::HolderConflict,
        };
        Self { highest_token, reason }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Keeps a member that is null apart from one that is missing.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;

    fn event(details: &Value) -> Value {
        let mut event = json!({"at_ms": 12, "world": "fenced", "actor": "client1", "token": 33});
        event.as_object_mut().unwrap().extend(details.as_object().unwrap().clone());
        event
    }

    /// Other programs read these names.
    #[test]
    fn event_is_written_with_its_name_and_details_and_read_again() {
        for details in [
            json!({"event": "paused"}),
            json!({"event": "killed"}),
            json!({"event": "unreachable", "nodes": "D and E"}),
            json!({"event": "lease-expired", "whose": "client 1"}),
            json!({"event": "lock-remains", "remaining_ms": null}),
            json!({"event": "acquired", "ttl_ms": 1000, "beside": "client 2"}),
            json!({"event": "read", "value": null, "version": null}),
            json!({"event": "read", "value": "10", "claimed": false}),
            json!({"event": "written", "value": "5", "version": 2, "overwrites_unseen": 1}),
            json!({"event": "rejected", "highest_token": 34, "reason": "stale-token"}),
            json!({"event": "accepted-anothers-token", "value": "5"}),
            json!({"event": "accepted-by-old-primary", "value": "5", "version": 2}),
        ] {
            let written = event(&details);
            let read: Event = from_value(written.clone()).unwrap();
            assert_eq!(to_value(&read).unwrap(), written);
        }
    }

    #[test]
    fn unknown_event_is_an_error_that_names_it() {
        let error = from_value::<Event>(event(&json!({"event": "wrote"}))).unwrap_err();
        assert!(error.to_string().contains("unknown variant `wrote`"), "{error}");
        let whose = json!({"event": "lock-kept", "whose": "network"});
        let error = from_value::<Event>(event(&whose)).unwrap_err();
        assert!(error.to_string().contains("`network` is not a client"), "{error}");
    }
}
