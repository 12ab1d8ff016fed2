//! The messages of etcd's JSON gateway.
//!
//! They are those of [`rpc.proto`](https://github.com/etcd-io/etcd/blob/v3.4.23/etcdserver/etcdserverpb/rpc.proto),
//! as far as they are needed. In JSON, bytes are in base64, replies have 64-bit numbers as text, and
//! leave out what is zero or empty.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A text that is sent as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(D::Error::custom)?;
        String::from_utf8(bytes).map(Self).map_err(D::Error::custom)
    }
}

/// Parses a number that is sent as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A transaction.
#[derive(Debug, Default, Serialize)]
pub(super) struct Txn {
    pub(super) compare: Vec<Compare>,
    /// Carried out if all comparisons hold.
    pub(super) success: Vec<Operation>,
    /// Carried out otherwise.
    pub(super) failure: Vec<Operation>,
}

/// A comparison of a key's revision with a number. A missing key has revision 0.
#[derive(Debug, Serialize)]
pub(super) struct Compare {
    target: &'static str,
    result: &'static str,
    key: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_revision: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mod_revision: Option<i64>,
}

impl Compare {
    /// The key was created at this revision, and exists since.
    pub(super) fn created(key: String, revision: i64) -> Self {
        Self {
            target: "CREATE",
            result: "EQUAL",
            key: Text(key),
            range_end: None,
            create_revision: Some(revision),
            mod_revision: None,
        }
    }

    /// No key in the range exists.
    pub(super) fn none_exists(key: String, end: String) -> Self {
        Self { range_end: Some(Text(end)), ..Self::created(key, 0) }
    }

    /// No key in the range was created before this revision.
    pub(super) fn none_before(key: String, end: String, revision: i64) -> Self {
        let all = Self { range_end: Some(Text(end)), ..Self::created(key, revision - 1) };
        Self { result: "GREATER", ..all }
    }

    /// The key was changed at this revision, and not since.
    pub(super) fn changed(key: String, revision: i64) -> Self {
        let unset = Self::created(key, 0);
        Self { target: "MOD", create_revision: None, mod_revision: Some(revision), ..unset }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, Serialize)]
pub(super) enum Operation {
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_put")]
    Put(Put),
    #[serde(rename = "request_delete_range")]
    Delete(Delete),
}

/// A read of one key, or of a range, the oldest key first.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Range {
    pub(super) key: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Text>,
    /// 0 means all.
    pub(super) limit: i64,
    pub(super) sort_order: &'static str,
    pub(super) sort_target: &'static str,
}

impl Range {
    /// Reads one key.
    pub(super) fn one(key: String) -> Self {
        Self {
            key: Text(key),
            range_end: None,
            limit: 0,
            sort_order: "ASCEND",
            sort_target: "CREATE",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Put {
    pub(super) key: Text,
    pub(super) value: Text,
    /// 0 means none.
    pub(super) lease: i64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Delete {
    pub(super) key: Text,
}

/// Where and when the cluster answered.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: i64,
    #[serde(default, deserialize_with = "unsigned")]
    pub(super) raft_term: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct TxnReply {
    pub(super) header: Header,
    /// Whether all comparisons held.
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    pub(super) responses: Vec<OperationReply>,
}

impl TxnReply {
    /// The number of keys that it has deleted.
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
    #[serde(default, deserialize_with = "unsigned")]
    deleted: u64,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RangeReply {
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
    /// The number of keys in the range, whatever the limit.
    #[serde(default, deserialize_with = "unsigned")]
    pub(super) count: u64,
}

#[derive(Clone, Debug, Deserialize)]
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

/// A request about a lease.
#[derive(Debug, Serialize)]
pub(super) struct LeaseRequest {
    #[serde(rename = "ID")]
    pub(super) id: i64,
    #[serde(rename = "TTL", skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<i64>,
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

/// One message of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: T,
}

#[derive(Debug, Serialize)]
pub(super) struct WatchRequest {
    pub(super) create_request: WatchCreate,
}

#[derive(Debug, Serialize)]
pub(super) struct WatchCreate {
    pub(super) key: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Text>,
    pub(super) start_revision: i64,
    pub(super) filters: [&'static str; 1],
}

#[derive(Debug, Deserialize)]
pub(super) struct WatchReply {
    /// etcd ends the watch, such as when the revisions to begin with are compacted.
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default)]
    pub(super) events: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Serialize)]
pub(super) struct Credentials {
    pub(super) name: String,
    pub(super) password: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Authenticated {
    pub(super) token: String,
}

/// A request without parameters.
#[derive(Debug, Serialize)]
pub(super) struct Empty {}

#[derive(Debug, Deserialize)]
pub(super) struct StatusReply {
    pub(super) header: MemberHeader,
    pub(super) version: String,
}

/// The member that answered.
#[derive(Debug, Deserialize)]
pub(super) struct MemberHeader {
    #[serde(deserialize_with = "unsigned")]
    pub(super) cluster_id: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct MembersReply {
    pub(super) members: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Serialize)]
pub(super) struct AlarmRequest {
    pub(super) action: &'static str,
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
