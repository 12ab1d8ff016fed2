//! Rows as registers: the fence is the register's, and the attributes have the rest.

use bytes::Bytes;
use fence::{
    Fence, Holder, Token,
    object_store::{NewValue, Replacement, Snapshot},
};
use serde::{Deserialize, Serialize};

use crate::{
    operation::{Content, Value},
    row::{self, Row, StoredValue},
    sequence::Answers,
    store::{Change, WantedValue},
};

/// The attributes of a register, as JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Attributes {
    /// The row's version, which no claim changes. The register's own version counts claims, too.
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<ValueAttributes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answers: Option<String>,
}

/// What is known of a value without reading it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ValueAttributes {
    content_type: String,
    pub(super) bytes: u64,
    /// The token and holder that it was written with.
    token: Option<Token>,
    holder: Holder,
}

impl ValueAttributes {
    /// The fence that it was written with.
    pub(super) fn written_with(&self) -> Option<Fence> {
        self.token.map(|token| Fence { token, holder: self.holder.clone() })
    }
}

/// A register as a server has written it.
#[derive(Clone, Debug)]
pub(super) struct Record<'a> {
    snapshot: &'a Snapshot,
    attributes: Attributes,
    answers: Answers,
}

impl<'a> Record<'a> {
    /// Decodes a register. The error says why no server can have written it.
    pub(super) fn decode(snapshot: &'a Snapshot) -> Result<Self, String> {
        if snapshot.version() == 0 {
            return Ok(Self {
                snapshot,
                attributes: Attributes::default(),
                answers: Answers::default(),
            });
        }
        let Some(attributes) = snapshot.attributes() else {
            return Err(
                "its register was written by another program than a storage server".to_owned()
            );
        };
        let attributes: Attributes = serde_json::from_str(attributes)
            .map_err(|error| format!("its attributes are malformed: {error}"))?;
        if attributes.value.is_some() != snapshot.has_value() {
            return Err("its attributes are not those of its value".to_owned());
        }
        if let Some(ValueAttributes { content_type, .. }) = &attributes.value
            && !Content::allows_type(content_type.as_bytes())
        {
            return Err(
                "the content type of its value is malformed: write the value again".to_owned()
            );
        }
        if attributes.version >= 1 << 62 {
            return Err("its version leaves no number for later ones".to_owned());
        }
        let answers =
            attributes.answers.as_deref().map_or_else(|| Ok(Answers::default()), str::parse);
        let answers = answers.map_err(|error| format!("its answers are malformed: {error}"))?;
        Ok(Self { snapshot, attributes, answers })
    }

    /// How many bytes the value has, if a read that wants so much of a value wants this one.
    pub(super) fn wanted_bytes(&self, wanted: WantedValue) -> Option<u64> {
        let bytes = self.attributes.value.as_ref()?.bytes;
        let is_wanted = match wanted {
            WantedValue::Description => false,
            WantedValue::AtMost(most) => usize::try_from(bytes).is_ok_and(|bytes| bytes <= most),
        };
        is_wanted.then_some(bytes)
    }

    /// The row, with its value if that was read.
    pub(super) fn row(&self, value: Option<Bytes>) -> Row {
        let value = match (&self.attributes.value, value) {
            (None, _) => StoredValue::Absent,
            (Some(described), None) => StoredValue::NotLoaded(row::Described {
                content_type: Some(described.content_type.clone()),
                size: described.bytes,
                written_with: described.written_with(),
            }),
            (Some(described), Some(bytes)) => {
                let content = Content { content_type: described.content_type.clone(), bytes };
                StoredValue::Present(Value { content, written_with: described.written_with() })
            }
        };
        Row {
            fence: self.snapshot.fence().cloned(),
            common_fence: None,
            version: self.attributes.version,
            value,
            answers: self.answers.clone(),
        }
    }

    /// What is known of the value, if there is one.
    pub(super) fn described(&self) -> Option<&ValueAttributes> {
        self.attributes.value.as_ref()
    }

    /// The row's version.
    pub(super) fn version(&self) -> u64 {
        self.attributes.version
    }

    /// Whether the row is as it was loaded, as far as a decision depends on it.
    pub(super) fn is_as(&self, before: &Row) -> bool {
        let has_value = before.value != StoredValue::Absent;
        self.snapshot.fence() == before.fence.as_ref()
            && before.common_fence.is_none()
            && self.attributes.version == before.version
            && self.snapshot.has_value() == has_value
            && self.answers == before.answers
    }

    /// What the register must be after a change of the row.
    pub(super) fn replacement(&self, Change { before, after, .. }: &Change<'_>) -> Replacement {
        let mut value = self.attributes.value.clone();
        let mut new = NewValue::Kept;
        // Each change of a value raises the version.
        if before.version != after.version {
            (value, new) = match &after.value {
                StoredValue::Present(written) => {
                    (Some(describe(written)), NewValue::Present(written.content.bytes.clone()))
                }
                StoredValue::Absent => (None, NewValue::Absent),
                StoredValue::Unknown | StoredValue::NotLoaded(_) => {
                    unreachable!("a change of the version sets the value")
                }
            };
        }
        let answers = (!after.answers.is_empty()).then(|| after.answers.to_string());
        let attributes = Attributes { version: after.version, value, answers };
        replacement(after.fence.clone(), &attributes, new)
    }

    /// What the register must be with another fence.
    pub(super) fn with_fence(&self, fence: Fence) -> Replacement {
        replacement(Some(fence), &self.attributes, NewValue::Kept)
    }
}

fn replacement(fence: Option<Fence>, attributes: &Attributes, value: NewValue) -> Replacement {
    let attributes = serde_json::to_string(attributes).expect("texts and numbers are JSON");
    Replacement { fence, attributes, value }
}

fn describe(Value { content, written_with }: &Value) -> ValueAttributes {
    let holder = written_with.as_ref().map_or(Holder::EMPTY, |fence| fence.holder.clone());
    ValueAttributes {
        content_type: content.content_type.clone(),
        bytes: content.bytes.len() as u64,
        token: written_with.as_ref().map(|fence| fence.token),
        holder,
    }
}
