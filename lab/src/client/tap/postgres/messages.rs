//! The messages of PostgreSQL's protocol, and what is in them.

use std::collections::HashMap;

use crate::client::tap::ledger::{shortened, text};

/// A column of a result.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The number of its type.
    pub(super) kind: u32,
}

/// Takes the first message from the bytes, without its length. A type precedes it, if it has one. Returns
/// `None` if its end is missing.
pub(super) fn whole(bytes: &mut Vec<u8>, kind: usize) -> Option<Vec<u8>> {
    let length = Fields(bytes.get(kind..)?).u32()?;
    let end = kind + usize::try_from(length).ok()?.max(4);
    if bytes.len() < end {
        return None;
    }
    let mut message: Vec<u8> = bytes.drain(..end).collect();
    message.drain(kind..kind + 4);
    Some(message)
}

/// A value as text. A binary one of a type that is not known here is shown as its bytes.
pub(super) fn shown(value: &[u8], kind: u32, is_binary: bool) -> String {
    // The numbers of PostgreSQL's own types never change.
    match (is_binary, kind, value) {
        (true, 16, [byte]) => (*byte == 1).to_string(),
        (true, 20 | 21 | 23 | 26, _) if value.len() <= 8 => {
            let is_negative = value.first().is_some_and(|byte| byte & 0x80 != 0);
            let start = if is_negative { -1 } else { 0 };
            value.iter().fold(start, |sum: i64, byte| (sum << 8) | i64::from(*byte)).to_string()
        }
        (false, ..) | (true, 0 | 18 | 19 | 25 | 114 | 1042 | 1043, _) => text(value),
        (true, 2278, _) => String::new(),
        _ => {
            let hex = value.iter().map(|byte| format!("{byte:02x}"));
            shortened(&format!("\\x{}", hex.collect::<String>()))
        }
    }
}

/// The fields of a message that are not read yet.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.bytes(2).map(|bytes| i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn i16s(&mut self) -> Option<Vec<i16>> {
        let count = self.i16()?;
        Some((0..count).map_while(|_| self.i16()).collect())
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.i32().map(i32::cast_unsigned)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.bytes(4).map(|bytes| i32::from_be_bytes(bytes.try_into().expect("there are four")))
    }

    /// A text that ends with a zero.
    pub(super) fn string(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let bytes = self.bytes(end + 1)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// A value, which may be null.
    pub(super) fn value(&mut self) -> Option<Option<&'a [u8]>> {
        match usize::try_from(self.i32()?) {
            Ok(length) => self.bytes(length).map(Some),
            Err(_) => Some(None),
        }
    }

    pub(super) fn columns(&mut self) -> Option<Vec<Column>> {
        let count = self.i16()?;
        let column = |_| {
            let name = self.string()?;
            self.bytes(6)?;
            let kind = self.u32()?;
            self.bytes(8)?;
            Some(Column { name, kind })
        };
        (0..count).map(column).collect()
    }

    /// The severity, the code, the message and the detail of an error.
    pub(super) fn error(&mut self) -> String {
        let mut parts = HashMap::new();
        while let Some(kind) = self.u8().filter(|kind| *kind != 0) {
            let Some(value) = self.string() else { break };
            parts.insert(kind, value);
        }
        let part = |kind| parts.get(&kind).map_or("", |part| &**part);
        let error = format!("{} {}: {}", part(b'S'), part(b'C'), part(b'M'));
        match part(b'D') {
            "" => error,
            detail => format!("{error}\n{detail}"),
        }
    }
}
