//! The place of an event in the stream of one server.

use std::{fmt, str::FromStr};

/// Names an event of one run of a server. Both numbers are random: an id doesn't tell how much the server
/// decides for other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    /// The run, which ends with the server's process.
    pub(super) run: u64,
    /// The event.
    pub(super) event: u64,
}

const DIGITS: usize = 16;

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.run, self.event)
    }
}

/// The text is not the id of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidEventId;

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let number = |digits: &str| {
            let is_number = digits.len() == DIGITS
                && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
            let number = is_number.then(|| u64::from_str_radix(digits, 16).ok());
            number.flatten().ok_or(InvalidEventId)
        };
        let (run, event) = text.split_once('-').ok_or(InvalidEventId)?;
        Ok(Self { run: number(run)?, event: number(event)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_as_they_are_sent_are_taken() {
        for id in [EventId { run: 0, event: u64::MAX }, EventId { run: 33, event: 0x34 << 40 }] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        let id = EventId { run: 33, event: 34 }.to_string();
        for wrong in ["", "-", "0", "33-34", &id[1..], &format!("{id}0"), &format!("+{}", &id[1..])]
        {
            assert_eq!(wrong.parse::<EventId>(), Err(InvalidEventId), "{wrong:?}");
        }
        assert_eq!("000000000000000A-0000000000000000".parse::<EventId>(), Err(InvalidEventId));
    }
}
