//! The messages of etcd's JSON gateway.
//!
//! They are those of [`rpc.proto`](https://github.com/etcd-io/etcd/blob/v3.4.23/etcdserver/etcdserverpb/rpc.proto),
//! as far as they are needed. In JSON, bytes are in base64, replies have 64-bit numbers as text,
//! and leave out what is zero or empty.

use std::{fmt::Display, str::FromStr};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny},
};
use serde_json::{Value, json};

pub(super) fn bytes(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Txn {
    /// Comparisons of a key's revision with a number. A missing key has revision 0.
    pub(super) compare: Vec<Value>,
    pub(super) success: Vec<Value>,
    pub(super) failure: Vec<Value>,
}

/// The key was created at this revision, and exists since.
pub(super) fn is_created(key: &str, revision: i64) -> Value {
    let (target, result, key) = ("CREATE", "EQUAL", bytes(key));
    json!({ "target": target, "result": result, "key": key, "create_revision": revision })
}

pub(super) fn none_exists(key: &str, end: &str) -> Value {
    let mut none = is_created(key, 0);
    none["range_end"] = bytes(end).into();
    none
}

/// No key in the range was created before this revision.
pub(super) fn none_is_before(key: &str, end: &str, revision: i64) -> Value {
    let mut none = none_exists(key, end);
    (none["result"], none["create_revision"]) = ("GREATER".into(), (revision - 1).into());
    none
}

/// The key was changed at this revision, and not since.
pub(super) fn is_changed(key: &str, revision: i64) -> Value {
    json!({ "target": "MOD", "result": "EQUAL", "key": bytes(key), "mod_revision": revision })
}

/// A read of a range, in the order of its keys' creation. The limit 0 means all.
pub(super) fn read(key: &str, end: Option<&str>, limit: u64) -> Value {
    let range = json!({
        "key": bytes(key), "range_end": end.map(bytes), "limit": limit,
        "sort_order": "ASCEND", "sort_target": "CREATE",
    });
    json!({ "request_range": range })
}

/// A put of a key on a lease. 0 means none.
pub(super) fn put(key: &str, value: &str, lease: i64) -> Value {
    json!({ "request_put": { "key": bytes(key), "value": bytes(value), "lease": lease } })
}

pub(super) fn delete(key: &str) -> Value {
    json!({ "request_delete_range": { "key": bytes(key) } })
}

/// A text that is sent as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(D::Error::custom)?;
        String::from_utf8(bytes).map(Self).map_err(D::Error::custom)
    }
}

/// Parses a number that is sent as text.
fn number<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Where and when the cluster answered.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "number")]
    pub(super) cluster_id: u64,
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: i64,
    #[serde(default, deserialize_with = "number")]
    pub(super) raft_term: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct TxnReply {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    pub(super) responses: Vec<OperationReply>,
}

impl TxnReply {
    pub(super) fn deleted(&self) -> u64 {
        let deletions = self.responses.iter().filter_map(|it| it.response_delete_range.as_ref());
        deletions.map(|deletion| deletion.deleted).sum()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct OperationReply {
    pub(super) response_range: Option<RangeReply>,
    response_delete_range: Option<DeleteReply>,
}

#[derive(Debug, Deserialize)]
struct DeleteReply {
    #[serde(default, deserialize_with = "number")]
    deleted: u64,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RangeReply {
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
    /// The number of keys in the range, whatever the limit.
    #[serde(default, deserialize_with = "number")]
    pub(super) count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct KeyValue {
    pub(super) key: Text,
    #[serde(default)]
    pub(super) value: Text,
    #[serde(default, deserialize_with = "number")]
    pub(super) create_revision: i64,
    #[serde(default, deserialize_with = "number")]
    pub(super) mod_revision: i64,
    #[serde(default, deserialize_with = "number")]
    pub(super) lease: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct LeaseReply {
    pub(super) header: Header,
    /// Its time, or the rest of it; 0 or negative if the lease does not exist.
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    pub(super) seconds: i64,
    /// The time for which it was granted, if the request was for the rest.
    #[serde(default, rename = "grantedTTL", deserialize_with = "number")]
    pub(super) granted: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: T,
}

#[derive(Debug, Deserialize)]
pub(super) struct WatchReply {
    /// etcd ends the watch, such as when the revisions to begin with are compacted.
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default)]
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Event {
    /// The kind of a put is the default, and left out.
    #[serde(default, rename = "type")]
    kind: String,
}

impl Event {
    pub(super) fn is_deletion(&self) -> bool {
        self.kind == "DELETE"
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Authenticated {
    pub(super) token: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct StatusReply {
    pub(super) header: Header,
    pub(super) version: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct MembersReply {
    pub(super) members: Vec<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AlarmReply {
    #[serde(default)]
    pub(super) alarms: Vec<Alarm>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Alarm {
    #[serde(default)]
    pub(super) alarm: String,
}
