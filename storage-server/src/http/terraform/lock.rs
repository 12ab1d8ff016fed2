//! The lock of a state, and how its row keeps it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fence::{Fence, Holder, ResourceName, Token};
use serde::{Deserialize, Serialize};

use crate::{
    http::problem::Problem,
    operation::{Condition, Content, Value, Versions},
    row::{Row, StoredValue},
};

/// The largest body of a request that locks or unlocks.
const MAX_LOCK_INFO_BYTES: u32 = 16 << 10;

/// What Terraform says of a lock (`statemgr.LockInfo`). Other members are left out. So are empty ones:
/// Terraform can't parse an empty time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct LockInfo {
    #[serde(rename = "ID")]
    pub(super) id: Holder,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    operation: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    info: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    who: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    created: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path: String,
}

impl LockInfo {
    pub(super) fn parse(json: &[u8]) -> Result<Self, Problem> {
        if json.len() > MAX_LOCK_INFO_BYTES as usize {
            return Err(Problem::value_too_large(MAX_LOCK_INFO_BYTES));
        }
        let info: Self = serde_json::from_slice(json)
            .map_err(|error| Problem::malformed_request(format!("the body is no lock: {error}")))?;
        if info.id.is_empty() {
            return Err(Problem::malformed_request("the ID of the lock is empty"));
        }
        Ok(info)
    }
}

/// The lock of a state. Its row has a value while the lock is held. The fence of the row is the lock's
/// counter: no lock has a token above it.
pub(super) struct Lock {
    pub(super) row: Row,
    /// `None` if the lock was released, or never acquired.
    pub(super) held: Option<Held>,
}

/// A lock that was not released. It may have expired.
pub(super) struct Held {
    /// The token and the id of the lock.
    pub(super) fence: Fence,
    record: Record,
}

/// The value of a lock's row.
#[derive(Debug, Deserialize, Serialize)]
struct Record {
    token: Token,
    /// Unix time, by the clock of the server that set it.
    expires_at_ms: u64,
    ttl_ms: u64,
    info: LockInfo,
}

impl Lock {
    pub(super) fn from_row(name: &ResourceName, row: Row) -> Result<Self, Problem> {
        let held = match &row.value {
            StoredValue::Present(value) => {
                Some(Held::from_value(value).ok_or_else(|| Problem::malformed_lock(name))?)
            }
            StoredValue::Absent => None,
            // No lock is so large.
            StoredValue::Unknown | StoredValue::NotLoaded(_) => {
                return Err(Problem::malformed_lock(name));
            }
        };
        Ok(Self { row, held })
    }

    /// The condition that the lock is still the same.
    pub(super) fn unchanged(&self) -> Condition {
        match self.held {
            Some(_) => {
                let versions = Versions::Listed(vec![self.row.version]);
                Condition { if_match: Some(versions), if_none_match: None }
            }
            None => Condition { if_match: None, if_none_match: Some(Versions::Any) },
        }
    }
}

impl Held {
    /// A lock that is held from now on.
    pub(super) fn new(fence: Fence, info: LockInfo, ttl: Duration) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let expires_at_ms = now_ms().saturating_add(ttl_ms);
        Self { record: Record { token: fence.token, expires_at_ms, ttl_ms, info }, fence }
    }

    /// The same lock, held from now on. Without a ttl, it keeps its own.
    pub(super) fn renewed(&self, ttl: Option<Duration>) -> Self {
        let ttl = ttl.unwrap_or(Duration::from_millis(self.ttl_ms()));
        Self::new(self.fence.clone(), self.record.info.clone(), ttl)
    }

    fn from_value(value: &Value) -> Option<Self> {
        let record: Record = serde_json::from_slice(&value.content.bytes).ok()?;
        let fence = Fence { token: record.token, holder: record.info.id.clone() };
        Some(Self { fence, record })
    }

    /// The value of the lock's row.
    pub(super) fn content(&self) -> Content {
        let bytes = serde_json::to_vec(&self.record).expect("texts and numbers are JSON");
        Content { content_type: "application/json".to_owned(), bytes: bytes.into() }
    }

    pub(super) fn ttl_ms(&self) -> u64 {
        self.record.ttl_ms
    }

    /// Whether another client may acquire the lock. Servers may disagree on this by as much as their
    /// clocks differ. That does no harm to the state, which the token protects.
    pub(super) fn is_expired(&self) -> bool {
        self.record.expires_at_ms <= now_ms()
    }

    /// The problem of another client. It has the members of the lock, which Terraform parses. With the whole
    /// ID, that client could upload.
    pub(super) fn problem(&self, state: &ResourceName) -> Problem {
        let LockInfo { id, who, operation, .. } = &self.record.info;
        let left = self.record.expires_at_ms.saturating_sub(now_ms()).div_ceil(1000);
        let left = humantime::format_duration(Duration::from_secs(left));
        let detail = format!(
            "the lock is held by {who:?} for {operation:?}, and expires in {left} unless it is renewed"
        );
        let members = serde_json::to_value(&self.record.info).expect("texts are JSON");
        let serde_json::Value::Object(mut members) = members else {
            unreachable!("a struct is an object");
        };
        members.insert("ID".to_owned(), id.redacted().into());
        Problem::state_locked(state, detail, members)
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
