//! The content of a register.

use std::iter;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{
    holder::{Holder, random_id},
    rule::Fence,
    token::Token,
};

/// The format of registers that are claimed, written and deleted.
const FORMAT: u32 = 1;
/// The format of registers with attributes. Programs that don't know these must not drop them.
const FORMAT_WITH_ATTRIBUTES: u32 = 2;

/// No version is as high. So each has a next one.
const VERSIONS: u64 = 1 << 62;

/// How many writes a state knows. A client that reads back later than that can't learn its outcome.
pub(super) const KNOWN_WRITES: usize = 16;

/// A state of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// `None` only if a program that decides by itself has stored no fence.
    pub(super) fence: Option<Fence>,
    /// Grows by one with each change. The first state has version 1.
    pub(super) version: u64,
    /// The random id of the write that made this state. So no two states have the same content, nor
    /// the same ETag.
    pub(super) write_id: String,
    /// The ids of the writes before that, the latest first.
    earlier_write_ids: Vec<String>,
    /// What a program that decides by itself keeps with the value.
    pub(super) attributes: Option<String>,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// There is none, or it was deleted: the state is then a tombstone, which keeps the fence.
    None,
    /// It is part of the register.
    Inline(Bytes),
    /// It is an object of this name.
    Object(String),
}

impl Value {
    /// The name of the object that it is.
    pub(super) fn object(&self) -> Option<&str> {
        match self {
            Self::Object(name) => Some(name),
            Self::None | Self::Inline(_) => None,
        }
    }
}

/// The first line of a register. An inline value follows it.
#[derive(Debug, Deserialize, Serialize)]
struct Header {
    format: u32,
    token: Option<Token>,
    holder: Holder,
    version: u64,
    write_id: String,
    earlier_write_ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attributes: Option<String>,
    value: Described,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Described {
    None,
    Inline { bytes: usize },
    Object { name: String },
}

impl State {
    /// Creates the state that follows another, or the first one. It has no attributes.
    pub(super) fn after(before: Option<&Self>, fence: Option<&Fence>, value: Value) -> Self {
        let write_ids = before.into_iter().flat_map(Self::write_ids);
        Self {
            fence: fence.cloned(),
            version: before.map_or(0, |before| before.version) + 1,
            write_id: random_id(),
            earlier_write_ids: write_ids.take(KNOWN_WRITES - 1).cloned().collect(),
            attributes: None,
            value,
        }
    }

    /// The id of the write that made a version of this register, unless that was too long ago.
    pub(super) fn write_id_at(&self, version: u64) -> Option<&str> {
        let back = self.version.checked_sub(version)?;
        self.write_ids().nth(back.try_into().ok()?).map(String::as_str)
    }

    /// The ids of the latest writes, the latest first.
    fn write_ids(&self) -> impl Iterator<Item = &String> {
        iter::once(&self.write_id).chain(&self.earlier_write_ids)
    }

    pub(super) fn encode(&self) -> Bytes {
        let (value, inline) = match &self.value {
            Value::None => (Described::None, &[][..]),
            Value::Inline(bytes) => (Described::Inline { bytes: bytes.len() }, &bytes[..]),
            Value::Object(name) => (Described::Object { name: name.clone() }, &[][..]),
        };
        let holder = self.fence.as_ref().map_or(Holder::EMPTY, |fence| fence.holder.clone());
        let header = Header {
            format: if self.attributes.is_some() { FORMAT_WITH_ATTRIBUTES } else { FORMAT },
            token: self.fence.as_ref().map(|fence| fence.token),
            holder,
            version: self.version,
            write_id: self.write_id.clone(),
            earlier_write_ids: self.earlier_write_ids.clone(),
            attributes: self.attributes.clone(),
            value,
        };
        let header =
            serde_json::to_vec(&header).expect("a header has no map, nor anything that fails");
        let mut encoded = BytesMut::with_capacity(header.len() + 1 + inline.len());
        encoded.extend_from_slice(&header);
        encoded.extend_from_slice(b"\n");
        encoded.extend_from_slice(inline);
        encoded.freeze()
    }

    /// Decodes a state, or says why the bytes are none.
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, String> {
        let end = bytes.iter().position(|&byte| byte == b'\n').ok_or("it has no line")?;
        let header: Header =
            serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
        let Header {
            format,
            token,
            holder,
            version,
            write_id,
            earlier_write_ids,
            attributes,
            value,
        } = header;
        let fence = token.map(|token| Fence { token, holder });
        match (format, &attributes, &fence) {
            (FORMAT, None, Some(_)) | (FORMAT_WITH_ATTRIBUTES, Some(_), _) => {}
            (FORMAT | FORMAT_WITH_ATTRIBUTES, ..) => {
                return Err(format!("its first line is not one of format {format}"));
            }
            _ => return Err(format!("its format is {format}, which a later version has written")),
        }
        if !(1..VERSIONS).contains(&version) {
            return Err(format!("no writer makes its version, {version}"));
        }
        let rest = bytes.slice(end + 1..);
        let (value, expected) = match value {
            Described::None => (Value::None, 0),
            Described::Inline { bytes } => (Value::Inline(rest.clone()), bytes),
            Described::Object { name } => (Value::Object(name), 0),
        };
        if rest.len() != expected {
            return Err(format!(
                "{} bytes follow its first line, instead of {expected}",
                rest.len()
            ));
        }
        Ok(Self { fence, version, write_id, earlier_write_ids, attributes, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(value: Value) -> State {
        let fence = Fence { token: Token::new(34).unwrap(), holder: "me".parse().unwrap() };
        let earlier_write_ids = vec!["89ab".to_owned(), "cdef".to_owned()];
        State {
            fence: Some(fence),
            version: 7,
            write_id: "0123".to_owned(),
            earlier_write_ids,
            attributes: None,
            value,
        }
    }

    #[test]
    fn states_are_decoded_as_they_were_encoded() {
        let values = [
            Value::None,
            Value::Inline(Bytes::new()),
            Value::Inline("two\nlines\n".into()),
            Value::Inline(Bytes::from_static(&[0, 0xff])),
            Value::Object("7-0123".to_owned()),
        ];
        for value in values {
            let state = state(value);
            assert_eq!(State::decode(&state.encode()), Ok(state));
        }
        let line = state(Value::Inline("70".into())).encode();
        assert_eq!(
            line,
            r#"{"format":1,"token":34,"holder":"me","version":7,"write_id":"0123","earlier_write_ids":["89ab","cdef"],"value":{"inline":{"bytes":2}}}
70"#
        );
    }

    #[test]
    fn states_know_the_latest_writes_by_their_versions() {
        let first = State::after(None, state(Value::None).fence.as_ref(), Value::None);
        let mut states = vec![first];
        for _ in 0..20 {
            let last = states.last().unwrap();
            states.push(State::after(Some(last), last.fence.as_ref(), Value::None));
        }
        let last = states.last().unwrap();
        assert_eq!(last.version, 21);
        for state in &states {
            let is_known = state.version > 21 - KNOWN_WRITES as u64;
            let write_id = is_known.then_some(state.write_id.as_str());
            assert_eq!(last.write_id_at(state.version), write_id, "{}", state.version);
        }
        assert_eq!(last.write_id_at(22), None);
    }

    #[test]
    fn states_with_attributes_have_a_format_of_their_own() {
        let kept = State {
            attributes: Some("{\"version\":3}".to_owned()),
            ..state(Value::Inline("70".into()))
        };
        for state in [State { fence: None, ..kept.clone() }, kept.clone()] {
            assert_eq!(State::decode(&state.encode()), Ok(state));
        }
        let text = String::from_utf8(kept.encode().to_vec()).unwrap();
        for (part, other) in [("\"format\":2", "\"format\":1"), ("attributes", "others")] {
            State::decode(&text.replace(part, other).into()).unwrap_err();
        }
        let nobodys = State { fence: None, ..state(Value::None) };
        State::decode(&nobodys.encode()).unwrap_err();
    }

    #[test]
    fn truncated_and_foreign_contents_are_no_states() {
        let encoded = state(Value::Inline("70".into())).encode();
        for length in 0..encoded.len() {
            State::decode(&encoded.slice(..length)).unwrap_err();
        }
        let later =
            String::from_utf8(encoded.to_vec()).unwrap().replace("\"format\":1", "\"format\":3");
        assert!(State::decode(&later.into()).unwrap_err().contains("later version"));
    }

    /// The version after the highest number would be 0, which is that of no register.
    #[test]
    fn versions_that_no_writer_makes_are_no_states() {
        let of_version = |version| State { version, ..state(Value::None) }.encode();
        for version in [1, VERSIONS - 1] {
            assert_eq!(State::decode(&of_version(version)).unwrap().version, version);
        }
        for version in [0, VERSIONS, u64::MAX] {
            assert!(State::decode(&of_version(version)).unwrap_err().contains("its version"));
        }
    }
}
